//! `authorization: Basic …` against the admin accounts of `admin-admin_credentials`.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};
use tonic::{Request, Status};

use super::is_local;

/// Gives the value of `admin-admin_credentials` as it is in force now.
type Source = Arc<dyn Fn() -> String + Send + Sync>;

/// Checks admin accounts. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Credentials {
    source: Source,
}

impl Credentials {
    pub(crate) fn new(source: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { source: Arc::new(source) }
    }

    /// The admin user in whose name `request` acts.
    ///
    /// # Errors
    /// UNAUTHENTICATED, without saying which part was wrong; PERMISSION_DENIED for `admin` from elsewhere.
    pub(crate) fn check<T>(&self, request: &Request<T>) -> Result<String, Status> {
        let header = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        let (user, password) = header.and_then(parse_basic).ok_or_else(|| {
            Status::unauthenticated("this call needs an admin account: send the header `authorization: Basic …` (grpcurl: -H 'authorization: Basic '$(printf admin:admin | base64))")
        })?;
        decide(&(self.source)(), &user, &password, request.remote_addr())?;
        Ok(user)
    }
}

fn decide(accounts: &str, user: &str, password: &str, from: Option<SocketAddr>) -> Result<(), Status> {
    let stored = accounts.split(';').filter_map(|account| account.trim().split_once(':')).find(|(name, _)| *name == user);
    if !stored.is_some_and(|(_, stored)| matches(stored, password)) {
        return Err(Status::unauthenticated("wrong user or password"));
    }
    if user == "admin" && !is_local(from) {
        return Err(Status::permission_denied("User 'admin' can only connect locally"));
    }
    Ok(())
}

fn parse_basic(header: &str) -> Option<(String, String)> {
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") || encoded.len() > 1024 {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// Clear text, or `*` and 40 hex digits of SHA1(SHA1(password)). Takes the same time wherever the first difference is.
fn matches(stored: &str, password: &str) -> bool {
    let given = match stored.strip_prefix('*') {
        Some(digits) if digits.len() == 40 && digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
            let twice = Sha1::digest(Sha1::digest(password.as_bytes()));
            let hex: String = twice.iter().map(|byte| format!("{byte:02X}")).collect();
            return equal(hex.as_bytes(), digits.to_ascii_uppercase().as_bytes());
        }
        _ => password,
    };
    equal(given.as_bytes(), stored.as_bytes())
}

fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_checked() {
        let local = Some("127.3.4.5:1".parse().unwrap());
        let remote = Some("10.0.0.7:1".parse().unwrap());
        let accounts = "admin:admin;ops:*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19";
        for (user, password, from, expected) in [
            ("admin", "admin", local, None),
            ("admin", "admin", remote, Some("User 'admin' can only connect locally")),
            ("admin", "admin", None, Some("User 'admin' can only connect locally")),
            ("ops", "password", remote, None),
            ("ops", "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19", local, Some("wrong user or password")),
            ("admin", "Admin", local, Some("wrong user or password")),
            ("nobody", "", local, Some("wrong user or password")),
        ] {
            let answer = decide(accounts, user, password, from).err().map(|status| status.message().to_owned());
            assert_eq!(answer.as_deref(), expected, "{user} {password}");
        }
    }

    #[test]
    fn the_header_is_parsed_and_its_absence_explained() {
        assert_eq!(parse_basic("Basic YWRtaW46YTpi"), Some(("admin".into(), "a:b".into())));
        for header in ["Bearer YWRtaW46YWRtaW4=", "Basic ???", "Basic", "Basic YWRtaW4="] {
            assert_eq!(parse_basic(header), None, "{header}");
        }
        let credentials = Credentials::new(|| "admin:admin".into());
        let error = credentials.check(&Request::new(())).unwrap_err();
        assert_eq!(error.code(), tonic::Code::Unauthenticated);
    }
}
