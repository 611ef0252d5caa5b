//! Authentication dialogues of both sides, without I/O (pgsql-dataplane.md 2.6, 2.7).
//!
//! Server side: [`Secrets`] are prepared once per stored password (that is where the CPU time goes), then each login runs a [`ServerAuth`].
//! Client side, towards servers: [`ClientAuth`].

use std::cell::RefCell;
use std::rc::Rc;

use thiserror::Error;

use super::client_keys::KnownKeys;
use super::error_fields::ErrorFields;
use super::password::{StoredPassword, md5_answer, md5_answer_of_hash};
use super::scram::{self, Binding, ClientExchange, NONCE_BYTES, ScramError, ServerExchange, Verifier};
use super::{backend, frontend, sqlstate};

/// Most bytes of a message before login is complete.
pub const MESSAGE_CAP: usize = 65_536;

/// How clients are asked for their password (`pgsql-authentication_method`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Method {
    /// Clear text.
    Cleartext,
    /// md5; SCRAM for a user of whom only a SCRAM verifier is stored.
    Md5,
    /// SCRAM-SHA-256; md5 for a user of whom only an md5 hash is stored.
    #[default]
    Scram,
}

/// What is known of one user's passwords, ready for any method. Cheap to log in with, dear to make.
#[derive(Clone, Debug)]
pub struct Secrets {
    password: StoredPassword,
    additional: Option<StoredPassword>,
    verifier: Verifier,
    additional_verifier: Option<Verifier>,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verifier(..)")
    }
}

impl Secrets {
    /// Prepares stored passwords: derives a verifier with `salt` for a clear-text one (PBKDF2, 1–3 ms each). Equal salts on all nodes keep
    /// challenges equal through a load balancer; 16 bytes, not secret.
    #[must_use]
    pub fn prepare(user: &str, password: &str, additional: Option<&str>, salt: &[u8]) -> Self {
        let password = StoredPassword::parse(password);
        let additional = additional.map(StoredPassword::parse);
        let verifier_of = |stored: &StoredPassword| match stored {
            StoredPassword::Plain(text) => Some(Verifier::derive(text.as_bytes(), salt, scram::DEFAULT_ITERATIONS)),
            StoredPassword::Scram(verifier) => Some(verifier.clone()),
            StoredPassword::Empty | StoredPassword::Md5(_) => None,
        };
        let verifier = verifier_of(&password).unwrap_or_else(|| Verifier::mock(salt, user));
        let additional_verifier = additional.as_ref().and_then(verifier_of);
        Self { password, additional, verifier, additional_verifier }
    }

    /// For a user that does not exist: the exchange looks the same and always fails. `secret` keeps the salt from being predicted.
    #[must_use]
    pub fn unknown(user: &str, secret: &[u8]) -> Self {
        Self { password: StoredPassword::Empty, additional: None, verifier: Verifier::mock(secret, user), additional_verifier: None }
    }

    fn stored(&self) -> impl Iterator<Item = &StoredPassword> {
        std::iter::once(&self.password).chain(&self.additional)
    }
}

/// What to do after a step of [`ServerAuth`]. What was appended to `out` is to be sent in any case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerStep {
    /// Wait for the next `p` message.
    Continue,
    /// The client is who it says. AuthenticationOk is the caller's to send.
    Done,
    /// It is not: send this error and close.
    Failed(ErrorFields),
}

/// The server's side of one login.
///
/// ```text
/// Cleartext ─p─► Done | Failed      Md5 ─p─► Done | Failed      SaslInitial ─p─► SaslFinal ─p─► Done | Failed
/// ```
pub struct ServerAuth {
    user: String,
    secrets: std::sync::Arc<Secrets>,
    binding: Option<Box<[u8]>>,
    state: ServerState,
}

enum ServerState {
    Cleartext,
    Md5([u8; 4]),
    SaslInitial([u8; NONCE_BYTES]),
    SaslFinal(Box<ServerExchange>),
    Finished,
}

impl ServerAuth {
    /// Starts a login: appends the first authentication request. `random` is fresh randomness; `binding` is
    /// `tls-server-end-point` of our certificate when the client has come by TLS, so that it can tell us from an impostor.
    #[must_use]
    pub fn start(
        user: &str,
        secrets: std::sync::Arc<Secrets>,
        method: Method,
        binding: Option<&[u8]>,
        random: [u8; NONCE_BYTES],
        out: &mut Vec<u8>,
    ) -> Self {
        let md5_only = matches!(secrets.password, StoredPassword::Md5(_));
        let scram_only = matches!(secrets.password, StoredPassword::Scram(_));
        let state = match method {
            Method::Cleartext => {
                backend::authentication_cleartext(out);
                ServerState::Cleartext
            }
            Method::Md5 | Method::Scram if (method == Method::Md5 && !scram_only) || md5_only => {
                let salt = [random[0], random[1], random[2], random[3]];
                backend::authentication_md5(out, salt);
                ServerState::Md5(salt)
            }
            Method::Md5 | Method::Scram => {
                let mechanisms = [scram::MECHANISM_PLUS, scram::MECHANISM];
                backend::authentication_sasl(out, if binding.is_some() { &mechanisms } else { &mechanisms[1..] });
                ServerState::SaslInitial(random)
            }
        };
        Self { user: user.to_owned(), secrets, binding: binding.map(Into::into), state }
    }

    /// Takes the body of the client's next `p` message.
    pub fn on_message(&mut self, body: &[u8], out: &mut Vec<u8>) -> ServerStep {
        match std::mem::replace(&mut self.state, ServerState::Finished) {
            ServerState::Cleartext => self.on_password(body, |stored, user, text| stored.verify_cleartext(user, text)),
            ServerState::Md5(salt) => self.on_password(body, |stored, user, text| stored.verify_md5(user, salt, text) == Some(true)),
            ServerState::SaslInitial(nonce) => self.on_sasl_initial(body, &nonce, out),
            ServerState::SaslFinal(exchange) => match exchange.finish(body) {
                Ok(last) => {
                    backend::authentication_sasl_final(out, &last);
                    ServerStep::Done
                }
                Err(error) => self.scram_failed(error),
            },
            ServerState::Finished => ServerStep::Failed(ErrorFields::fatal(sqlstate::PROTOCOL_VIOLATION, "unexpected password message")),
        }
    }

    fn on_password(&self, body: &[u8], verify: impl Fn(&StoredPassword, &str, &[u8]) -> bool) -> ServerStep {
        let Ok(text) = frontend::decode_password(body) else {
            return ServerStep::Failed(ErrorFields::fatal(sqlstate::PROTOCOL_VIOLATION, "invalid password packet size"));
        };
        if text.is_empty() {
            return ServerStep::Failed(ErrorFields::fatal(sqlstate::INVALID_PASSWORD, "empty password returned by client"));
        }
        if self.secrets.stored().any(|stored| verify(stored, &self.user, text)) { ServerStep::Done } else { self.failed() }
    }

    fn on_sasl_initial(&mut self, body: &[u8], nonce: &[u8; NONCE_BYTES], out: &mut Vec<u8>) -> ServerStep {
        let Ok((mechanism, data)) = frontend::decode_sasl_initial_response(body) else {
            return self.scram_failed(ScramError::Malformed);
        };
        let binding = match &self.binding {
            Some(data) if mechanism == scram::MECHANISM_PLUS.as_bytes() => Some(Binding::Bound(data)),
            Some(_) if mechanism == scram::MECHANISM.as_bytes() => Some(Binding::NotChosen),
            None if mechanism == scram::MECHANISM.as_bytes() => Some(Binding::NotOffered),
            _ => None,
        };
        let Some(binding) = binding else {
            let text = "client selected an invalid SASL authentication mechanism";
            return ServerStep::Failed(ErrorFields::fatal(sqlstate::PROTOCOL_VIOLATION, text));
        };
        let Some(data) = data else {
            backend::authentication_sasl_continue(out, &[]);
            self.state = ServerState::SaslInitial(*nonce);
            return ServerStep::Continue;
        };
        match ServerExchange::start(self.secrets.verifier.clone(), data, nonce, binding) {
            Ok((exchange, challenge)) => {
                backend::authentication_sasl_continue(out, &challenge);
                self.state = ServerState::SaslFinal(Box::new(exchange.or(self.secrets.additional_verifier.clone())));
                ServerStep::Continue
            }
            Err(error) => self.scram_failed(error),
        }
    }

    fn scram_failed(&self, error: ScramError) -> ServerStep {
        match error {
            ScramError::Malformed | ScramError::ChannelBinding => {
                ServerStep::Failed(ErrorFields::fatal(sqlstate::PROTOCOL_VIOLATION, error.to_string()))
            }
            ScramError::WrongPassword | ScramError::ServerSignature | ScramError::Iterations(_) => self.failed(),
        }
    }

    fn failed(&self) -> ServerStep {
        ServerStep::Failed(password_failed(&self.user))
    }
}

/// The error of a wrong password, and of everything that must look like one.
#[must_use]
pub fn password_failed(user: &str) -> ErrorFields {
    ErrorFields::fatal(sqlstate::INVALID_PASSWORD, format!("password authentication failed for user \"{user}\""))
}

/// Whether a password may be sent as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CleartextPolicy {
    /// The connection is encrypted, or does not leave the machine.
    Allow,
    /// Anyone could read it.
    Refuse,
}

/// Why we cannot log in to a server.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ClientAuthError {
    /// The server wants what we cannot derive from the stored form.
    #[error("the server asks for {wanted}, which needs the password in clear text, but only {stored} is stored for user \"{user}\"")]
    NeedsPlain {
        /// What the server wants.
        wanted: &'static str,
        /// What we have.
        stored: &'static str,
        /// Whose.
        user: String,
    },
    /// The server wants the password in clear text over a connection that others can read.
    #[error("the server asks for a clear-text password over an unencrypted connection")]
    Cleartext,
    /// A method that we do not have.
    #[error("the server asks for authentication method {0}, which is not supported")]
    Method(u32),
    /// SASL without a mechanism that we have.
    #[error("the server offers no SASL mechanism that is supported")]
    Mechanism,
    /// SCRAM went wrong.
    #[error("{0}")]
    Scram(#[from] ScramError),
    /// A message that does not belong here, or AuthenticationOk before SCRAM was finished.
    #[error("unexpected authentication message")]
    Unexpected,
}

/// What to do after a step of [`ClientAuth`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientStep {
    /// Send what was appended, if anything, and wait for the next `R`.
    Continue,
    /// Logged in.
    Done,
}

/// The client's side of one login to a server.
pub struct ClientAuth {
    user: String,
    password: StoredPassword,
    cleartext: CleartextPolicy,
    binding: Option<Vec<u8>>,
    known: Rc<RefCell<KnownKeys>>,
    state: ClientState,
}

enum ClientState {
    Start,
    Answered,
    Challenge(ClientExchange),
    Final(ClientExchange),
}

impl ClientAuth {
    /// Prepares to log in as `user` with a stored password.
    #[must_use]
    pub fn new(user: &str, stored: &str, cleartext: CleartextPolicy) -> Self {
        let password = StoredPassword::parse(stored);
        Self { user: user.to_owned(), password, cleartext, binding: None, known: Rc::default(), state: ClientState::Start }
    }

    /// Binds the login to the TLS connection: `tls-server-end-point` of the server's certificate, where there is one.
    #[must_use]
    pub fn bound_to(self, end_point: Option<Vec<u8>>) -> Self {
        Self { binding: end_point, ..self }
    }

    /// Looks for SCRAM's keys among those that were derived before, and puts new ones there.
    #[must_use]
    pub fn remembering(self, known: Rc<RefCell<KnownKeys>>) -> Self {
        Self { known, ..self }
    }

    /// Takes the body of the server's `R` message and appends the answer. `random` is fresh randomness.
    ///
    /// # Errors
    /// Each is final: close the connection.
    pub fn on_request(&mut self, body: &[u8], random: &[u8; NONCE_BYTES], out: &mut Vec<u8>) -> Result<ClientStep, ClientAuthError> {
        use backend::Authentication as Request;
        let request = Request::decode(body).map_err(|_| ClientAuthError::Unexpected)?;
        let state = std::mem::replace(&mut self.state, ClientState::Answered);
        self.state = match (state, request) {
            (ClientState::Start | ClientState::Answered, Request::Ok) => return Ok(ClientStep::Done),
            (ClientState::Start, Request::CleartextPassword) => self.answer_cleartext(out)?,
            (ClientState::Start, Request::Md5Password(salt)) => self.answer_md5(salt, out)?,
            (ClientState::Start, Request::Sasl(mechanisms)) => self.answer_sasl(mechanisms, random, out)?,
            (ClientState::Challenge(mut exchange), Request::SaslContinue(challenge)) => {
                frontend::sasl_response(out, &exchange.on_challenge(challenge, &mut self.known.borrow_mut())?);
                ClientState::Final(exchange)
            }
            (ClientState::Final(exchange), Request::SaslFinal(data)) => {
                exchange.on_final(data)?;
                ClientState::Answered
            }
            (_, Request::Unsupported(method)) => return Err(ClientAuthError::Method(method)),
            _ => return Err(ClientAuthError::Unexpected),
        };
        Ok(ClientStep::Continue)
    }

    fn answer_cleartext(&self, out: &mut Vec<u8>) -> Result<ClientState, ClientAuthError> {
        if self.cleartext == CleartextPolicy::Refuse {
            return Err(ClientAuthError::Cleartext);
        }
        match &self.password {
            StoredPassword::Plain(text) => frontend::password(out, text.as_bytes()),
            other => return Err(self.needs_plain("a clear-text password", other)),
        }
        Ok(ClientState::Answered)
    }

    fn answer_md5(&self, salt: [u8; 4], out: &mut Vec<u8>) -> Result<ClientState, ClientAuthError> {
        let answer = match &self.password {
            StoredPassword::Plain(text) => md5_answer(&self.user, text.as_bytes(), salt),
            StoredPassword::Md5(hash) => md5_answer_of_hash(hash, salt),
            other => return Err(self.needs_plain("an md5 password", other)),
        };
        frontend::password(out, &answer);
        Ok(ClientState::Answered)
    }

    fn answer_sasl(&self, mechanisms: &[u8], random: &[u8; NONCE_BYTES], out: &mut Vec<u8>) -> Result<ClientState, ClientAuthError> {
        let offers = |mechanism: &str| backend::sasl_mechanisms(mechanisms).any(|name| name == mechanism.as_bytes());
        let (mechanism, binding) = match &self.binding {
            Some(data) if offers(scram::MECHANISM_PLUS) => (scram::MECHANISM_PLUS, Binding::Bound(data)),
            Some(_) => (scram::MECHANISM, Binding::NotChosen),
            None => (scram::MECHANISM, Binding::NotOffered),
        };
        if !offers(mechanism) {
            return Err(ClientAuthError::Mechanism);
        }
        let StoredPassword::Plain(text) = &self.password else {
            return Err(self.needs_plain("SCRAM-SHA-256", &self.password));
        };
        let (exchange, first) = ClientExchange::start(text.as_bytes(), random, binding);
        frontend::sasl_initial_response(out, mechanism.as_bytes(), &first);
        Ok(ClientState::Challenge(exchange))
    }

    fn needs_plain(&self, wanted: &'static str, stored: &StoredPassword) -> ClientAuthError {
        let stored = match stored {
            StoredPassword::Empty => "no password",
            StoredPassword::Plain(_) => "a clear-text password",
            StoredPassword::Md5(_) => "an md5 hash",
            StoredPassword::Scram(_) => "a SCRAM verifier",
        };
        ClientAuthError::NeedsPlain { wanted, stored, user: self.user.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::frame;
    use super::*;

    /// Lets both sides talk to each other until one of them is done; `None` = the client gave up.
    fn login(stored: &str, additional: Option<&str>, method: Method, given: &str) -> Result<Option<ServerStep>, ClientAuthError> {
        let mut to_client = Vec::new();
        let secrets = Arc::new(Secrets::prepare("u", stored, additional, b"0123456789abcdef"));
        let mut server = ServerAuth::start("u", secrets, method, None, [3; NONCE_BYTES], &mut to_client);
        let mut client = ClientAuth::new("u", given, CleartextPolicy::Allow);
        for _ in 0..5 {
            let mut to_server = Vec::new();
            let request = frame::decode(&to_client, MESSAGE_CAP).unwrap().unwrap();
            client.on_request(request.body, &[5; NONCE_BYTES], &mut to_server)?;
            let answer = frame::decode(&to_server, MESSAGE_CAP).unwrap().unwrap();
            to_client.clear();
            match server.on_message(answer.body, &mut to_client) {
                ServerStep::Continue => {}
                ServerStep::Done => {
                    backend::authentication_ok(&mut to_client);
                    let mut rest = &to_client[..];
                    let mut last = ClientStep::Continue;
                    while let Some(frame) = frame::decode(rest, MESSAGE_CAP).unwrap() {
                        last = client.on_request(frame.body, &[5; NONCE_BYTES], &mut to_server)?;
                        rest = &rest[frame.size()..];
                    }
                    assert_eq!(last, ClientStep::Done);
                    return Ok(Some(ServerStep::Done));
                }
                failed @ ServerStep::Failed(_) => return Ok(Some(failed)),
            }
        }
        Ok(None)
    }

    #[test]
    fn right_and_wrong_passwords_by_every_method() {
        let scram = Verifier::derive(b"secret", b"some salt", 2).to_stored();
        for method in [Method::Cleartext, Method::Md5, Method::Scram] {
            for stored in ["secret", scram.as_str()] {
                assert_eq!(login(stored, None, method, "secret"), Ok(Some(ServerStep::Done)), "{method:?} {stored}");
                assert_eq!(login(stored, None, method, "other"), Ok(Some(ServerStep::Failed(password_failed("u")))), "{method:?} {stored}");
            }
        }
    }

    #[test]
    fn the_additional_password_counts() {
        for method in [Method::Cleartext, Method::Md5, Method::Scram] {
            assert_eq!(login("old", Some("new"), method, "new"), Ok(Some(ServerStep::Done)), "{method:?}");
            assert_eq!(login("old", Some("new"), method, "old"), Ok(Some(ServerStep::Done)), "{method:?}");
        }
    }

    #[test]
    fn nobody_logs_in_without_a_stored_password() {
        for method in [Method::Cleartext, Method::Md5, Method::Scram] {
            assert_eq!(login("", None, method, "x"), Ok(Some(ServerStep::Failed(password_failed("u")))), "{method:?}");
        }
    }

    #[test]
    fn a_stored_hash_chooses_its_method() {
        let mut out = Vec::new();
        let hashed = Arc::new(Secrets::prepare("u", "md562af4dd09bbb41884907a838a3233294", None, b"salt"));
        let _ = ServerAuth::start("u", hashed, Method::Scram, None, [3; NONCE_BYTES], &mut out);
        assert_eq!(out, b"R\0\0\0\x0c\0\0\0\x05\x03\x03\x03\x03");
        out.clear();
        let scram = Arc::new(Secrets::prepare("u", &Verifier::derive(b"x", b"s", 1).to_stored(), None, b"salt"));
        let _ = ServerAuth::start("u", scram, Method::Md5, None, [3; NONCE_BYTES], &mut out);
        assert_eq!(out[8], 10);
    }

    #[test]
    fn unknown_users_look_like_wrong_passwords() {
        let secrets = Arc::new(Secrets::unknown("u", b"node secret"));
        let mut out = Vec::new();
        let mut server = ServerAuth::start("u", secrets, Method::Scram, None, [3; NONCE_BYTES], &mut out);
        let (mut client, first) = ClientExchange::start(b"x", &[5; NONCE_BYTES], Binding::NotOffered);
        let mut message = Vec::new();
        frontend::sasl_initial_response(&mut message, b"SCRAM-SHA-256", &first);
        out.clear();
        assert_eq!(server.on_message(&message[5..], &mut out), ServerStep::Continue);
        let last = client.on_challenge(&out[9..], &mut KnownKeys::default()).unwrap();
        assert_eq!(server.on_message(&last, &mut out), ServerStep::Failed(password_failed("u")));
    }

    #[test]
    fn what_a_verifier_cannot_do_is_said() {
        let stored = Verifier::derive(b"x", b"s", 1).to_stored();
        let mut out = Vec::new();
        for (body, wanted) in [(&b"\0\0\0\x05abcd"[..], "an md5 password"), (b"\0\0\0\x0aSCRAM-SHA-256\0\0", "SCRAM-SHA-256")] {
            let mut client = ClientAuth::new("u", &stored, CleartextPolicy::Allow);
            let error = client.on_request(body, &[0; NONCE_BYTES], &mut out);
            assert_eq!(error, Err(ClientAuthError::NeedsPlain { wanted, stored: "a SCRAM verifier", user: "u".into() }));
        }
    }

    #[test]
    fn servers_that_cheat() {
        let sasl = b"\0\0\0\x0aSCRAM-SHA-256\0\0";
        let mut out = Vec::new();
        let mut client = ClientAuth::new("u", "p", CleartextPolicy::Refuse);
        client.on_request(sasl, &[0; NONCE_BYTES], &mut out).unwrap();
        assert_eq!(
            client.on_request(b"\0\0\0\0", &[0; NONCE_BYTES], &mut out),
            Err(ClientAuthError::Unexpected),
            "Ok in the middle of SCRAM"
        );
        let mut client = ClientAuth::new("u", "p", CleartextPolicy::Refuse);
        assert_eq!(client.on_request(b"\0\0\0\x03", &[0; NONCE_BYTES], &mut out), Err(ClientAuthError::Cleartext));
        let mut client = ClientAuth::new("u", "p", CleartextPolicy::Refuse);
        assert_eq!(client.on_request(b"\0\0\0\x07", &[0; NONCE_BYTES], &mut out), Err(ClientAuthError::Method(7)));
        let mut client = ClientAuth::new("u", "p", CleartextPolicy::Refuse);
        assert_eq!(client.on_request(b"\0\0\0\x0aOTHER\0\0", &[0; NONCE_BYTES], &mut out), Err(ClientAuthError::Mechanism));
    }

    #[test]
    fn over_tls_the_login_is_bound_to_the_certificate() {
        let secrets = Arc::new(Secrets::prepare("u", "p", None, b"0123456789abcdef"));
        for (ours, theirs, mechanism, done) in [
            (Some(&b"hash"[..]), Some(&b"hash"[..]), "SCRAM-SHA-256-PLUS", true),
            (Some(b"hash"), Some(b"other"), "SCRAM-SHA-256-PLUS", false),
            (Some(b"hash"), None, "SCRAM-SHA-256", true),
            (None, Some(b"hash"), "SCRAM-SHA-256", true),
        ] {
            let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
            let mut server = ServerAuth::start("u", Arc::clone(&secrets), Method::Scram, ours, [3; NONCE_BYTES], &mut to_client);
            let mut client = ClientAuth::new("u", "p", CleartextPolicy::Refuse).bound_to(theirs.map(<[u8]>::to_vec));
            client.on_request(&to_client[5..], &[5; NONCE_BYTES], &mut to_server).unwrap();
            assert_eq!(frontend::decode_sasl_initial_response(&to_server[5..]).unwrap().0, mechanism.as_bytes());
            to_client.clear();
            assert_eq!(server.on_message(&to_server[5..], &mut to_client), ServerStep::Continue);
            to_server.clear();
            client.on_request(&to_client[5..], &[5; NONCE_BYTES], &mut to_server).unwrap();
            assert_eq!(server.on_message(&to_server[5..], &mut Vec::new()) == ServerStep::Done, done, "{ours:?} {theirs:?}");
        }
    }

    #[test]
    fn trust_is_done_at_once() {
        let mut client = ClientAuth::new("u", "", CleartextPolicy::Refuse);
        assert_eq!(client.on_request(b"\0\0\0\0", &[0; NONCE_BYTES], &mut Vec::new()), Ok(ClientStep::Done));
    }
}
