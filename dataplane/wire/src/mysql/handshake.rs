//! Greeting, its answer, and the packets between them and OK.

use super::capabilities::{Capabilities, Status};
use super::reader::{Reader, WireError};
use super::writer::Put;

/// Bytes of a scramble.
pub const SCRAMBLE_LEN: usize = 20;
/// Random bytes that authentication is computed with.
pub type Scramble = [u8; SCRAMBLE_LEN];

/// Name of the plugin of MySQL 4.1 to 8 and MariaDB.
pub const NATIVE: &str = "mysql_native_password";
/// Name of the plugin of MySQL 8 and later.
pub const CACHING_SHA2: &str = "caching_sha2_password";
/// Name of the plugin that sends the password as it is.
pub const CLEAR: &str = "mysql_clear_password";

/// Most payload bytes that a client may send before it is logged in.
pub const MAX_LOGIN_PACKET: usize = 128 << 10;

/// A fresh scramble from the system's generator: 7-bit, never 0 and never `$`, as the MySQL server makes it.
pub fn new_scramble() -> Result<Scramble, getrandom::Error> {
    let mut scramble = [0; SCRAMBLE_LEN];
    getrandom::fill(&mut scramble)?;
    for byte in &mut scramble {
        *byte &= 0x7f;
        if *byte == 0 || *byte == b'$' {
            *byte += 1;
        }
    }
    Ok(scramble)
}

/// `Protocol::HandshakeV10`, the server's first packet.
///
/// ```text
/// int<1> 10 | string<NUL> version | int<4> id | 8 bytes scramble | 0 | int<2> caps low | int<1> charset | int<2> status
/// int<2> caps high | int<1> 21 | 10 bytes 0 | 12 bytes scramble | 0 | string<NUL> plugin
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// Server version, without NUL.
    pub server_version: String,
    /// Connection id.
    pub connection_id: u32,
    /// Scramble.
    pub scramble: Scramble,
    /// What the server offers.
    pub capabilities: Capabilities,
    /// Low byte of the default collation's id.
    pub charset: u8,
    /// Status, normally AUTOCOMMIT.
    pub status: Status,
    /// The plugin for which the scramble is meant.
    pub plugin: String,
}

impl Greeting {
    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.u8(10);
        out.nul_bytes(self.server_version.as_bytes());
        out.u32(self.connection_id);
        out.bytes(&self.scramble[..8]);
        out.u8(0);
        out.u16(self.capabilities.0 as u16);
        out.u8(self.charset);
        out.u16(self.status.0);
        out.u16((self.capabilities.0 >> 16) as u16);
        out.u8(SCRAMBLE_LEN as u8 + 1);
        out.bytes(&[0; 10]);
        out.bytes(&self.scramble[8..]);
        out.u8(0);
        out.nul_bytes(self.plugin.as_bytes());
    }

    /// Reads a payload. A server that refuses sends ERR instead (first byte 0xFF): look for it first.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(payload);
        if reader.u8("protocol version")? != 10 {
            return Err(WireError::Malformed("greeting of a protocol other than 10"));
        }
        let server_version = String::from_utf8_lossy(reader.nul_bytes("server version")?).into_owned();
        let connection_id = reader.u32("connection id")?;
        let mut scramble = [0; SCRAMBLE_LEN];
        scramble[..8].copy_from_slice(reader.take(8, "scramble")?);
        reader.u8("filler")?;
        let low = reader.u16("capabilities")?;
        let charset = reader.u8("character set")?;
        let status = Status(reader.u16("status")?);
        let high = reader.u16("capabilities")?;
        let capabilities = Capabilities(u32::from(low) | u32::from(high) << 16);
        reader.u8("scramble length")?;
        reader.take(10, "reserved")?;
        if !capabilities.contains(Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION) {
            return Err(WireError::Malformed("server without protocol 4.1"));
        }
        scramble[8..].copy_from_slice(reader.take(12, "scramble")?);
        reader.u8("scramble end")?;
        let plugin = if capabilities.contains(Capabilities::PLUGIN_AUTH) {
            let text = reader.take_rest();
            let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
            String::from_utf8_lossy(&text[..end]).into_owned()
        } else {
            NATIVE.to_owned()
        };
        Ok(Self { server_version, connection_id, scramble, capabilities, charset, status, plugin })
    }
}

/// `Protocol::HandshakeResponse41`, the client's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandshakeResponse<'a> {
    /// What the client wants of what was offered.
    pub capabilities: Capabilities,
    /// Largest packet that it takes.
    pub max_packet: u32,
    /// Low byte of its collation's id.
    pub charset: u8,
    /// User name.
    pub user: &'a [u8],
    /// Reply to the scramble.
    pub auth: &'a [u8],
    /// Schema; empty counts as none.
    pub schema: Option<&'a [u8]>,
    /// Plugin that `auth` was made with.
    pub plugin: Option<&'a [u8]>,
    /// Connection attributes, undecoded key/value list.
    pub attributes: &'a [u8],
}

impl<'a> HandshakeResponse<'a> {
    /// Reads a payload. Clients of protocols before 4.1 are an error (1043).
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(payload);
        let capabilities = Capabilities(reader.u32("capabilities")?);
        if !capabilities.contains(Capabilities::PROTOCOL_41) {
            return Err(WireError::Malformed("client without protocol 4.1"));
        }
        let max_packet = reader.u32("max packet")?;
        let charset = reader.u8("character set")?;
        reader.take(23, "filler")?;
        let user = reader.nul_bytes("user")?;
        let auth = if capabilities.contains(Capabilities::PLUGIN_AUTH_LENENC) {
            reader.lenenc_bytes("authentication reply")?
        } else if capabilities.contains(Capabilities::SECURE_CONNECTION) {
            let length = reader.u8("authentication reply")?;
            reader.take(usize::from(length), "authentication reply")?
        } else {
            reader.nul_bytes("authentication reply")?
        };
        let schema = optional_name(&mut reader, capabilities.contains(Capabilities::CONNECT_WITH_DB))?;
        let plugin = optional_name(&mut reader, capabilities.contains(Capabilities::PLUGIN_AUTH))?;
        let attributes = if capabilities.contains(Capabilities::CONNECT_ATTRS) && !reader.is_empty() {
            reader.lenenc_bytes("connection attributes")?
        } else {
            &[]
        };
        Ok(Self { capabilities, max_packet, charset, user, auth, schema, plugin, attributes })
    }

    /// Appends the payload; the optional parts go by the capability bits.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.capabilities.0);
        out.u32(self.max_packet);
        out.u8(self.charset);
        out.bytes(&[0; 23]);
        out.nul_bytes(self.user);
        if self.capabilities.contains(Capabilities::PLUGIN_AUTH_LENENC) {
            out.lenenc_bytes(self.auth);
        } else {
            out.u8(self.auth.len() as u8);
            out.bytes(self.auth);
        }
        if self.capabilities.contains(Capabilities::CONNECT_WITH_DB) {
            out.nul_bytes(self.schema.unwrap_or_default());
        }
        if self.capabilities.contains(Capabilities::PLUGIN_AUTH) {
            out.nul_bytes(self.plugin.unwrap_or_default());
        }
        if self.capabilities.contains(Capabilities::CONNECT_ATTRS) {
            out.lenenc_bytes(self.attributes);
        }
    }
}

/// A name that ends with NUL or with the packet (some clients leave the last NUL out); empty = none.
fn optional_name<'a>(reader: &mut Reader<'a>, present: bool) -> Result<Option<&'a [u8]>, WireError> {
    if !present || reader.is_empty() {
        return Ok(None);
    }
    let name = if reader.rest().contains(&0) { reader.nul_bytes("name")? } else { reader.take_rest() };
    Ok((!name.is_empty()).then_some(name))
}

/// Appends one connection attribute to a key/value list.
pub fn put_attribute(list: &mut Vec<u8>, key: &str, value: &str) {
    list.lenenc_bytes(key.as_bytes());
    list.lenenc_bytes(value.as_bytes());
}

/// `Protocol::SSLRequest`: the first 32 bytes of a handshake response with CLIENT_SSL set. The response follows inside TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SslRequest {
    /// What the client wants.
    pub capabilities: Capabilities,
    /// Largest packet that it takes.
    pub max_packet: u32,
    /// Low byte of its collation's id.
    pub charset: u8,
}

impl SslRequest {
    /// `None` = the payload is not an SSLRequest.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let capabilities = Capabilities(reader.u32("capabilities").ok()?);
        let max_packet = reader.u32("max packet").ok()?;
        let charset = reader.u8("character set").ok()?;
        (payload.len() == 32 && capabilities.contains(Capabilities::SSL)).then_some(Self { capabilities, max_packet, charset })
    }

    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.capabilities.0);
        out.u32(self.max_packet);
        out.u8(self.charset);
        out.bytes(&[0; 23]);
    }
}

/// `Protocol::AuthSwitchRequest`: 0xFE, `string<NUL>` plugin, scramble, NUL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthSwitch<'a> {
    /// The plugin to use from here.
    pub plugin: &'a [u8],
    /// Its data: a scramble, for the plugins that take one.
    pub data: &'a [u8],
}

impl<'a> AuthSwitch<'a> {
    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.u8(0xfe);
        out.nul_bytes(self.plugin);
        out.bytes(self.data);
        out.u8(0);
    }

    /// Reads a payload that starts with 0xFE. A lone 0xFE asks for the authentication of MySQL 4.0, which is refused.
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(payload);
        if reader.u8("authentication switch")? != 0xfe {
            return Err(WireError::Malformed("not an authentication switch"));
        }
        let plugin = reader.nul_bytes("plugin")?;
        let data = reader.take_rest();
        Ok(Self { plugin, data: data.strip_suffix(&[0]).unwrap_or(data) })
    }

    /// The data as a scramble.
    #[must_use]
    pub fn scramble(&self) -> Option<Scramble> {
        self.data.try_into().ok()
    }
}

/// `COM_CHANGE_USER`, without the command byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeUser<'a> {
    /// User name.
    pub user: &'a [u8],
    /// Reply to the scramble of the greeting.
    pub auth: &'a [u8],
    /// Schema; empty counts as none.
    pub schema: Option<&'a [u8]>,
    /// Collation id.
    pub charset: Option<u16>,
    /// Plugin that `auth` was made with.
    pub plugin: Option<&'a [u8]>,
}

impl<'a> ChangeUser<'a> {
    /// Reads what follows the command byte.
    pub fn decode(body: &'a [u8], capabilities: Capabilities) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let user = reader.nul_bytes("user")?;
        let auth = if capabilities.contains(Capabilities::SECURE_CONNECTION) {
            let length = reader.u8("authentication reply")?;
            reader.take(usize::from(length), "authentication reply")?
        } else {
            reader.nul_bytes("authentication reply")?
        };
        let schema = optional_name(&mut reader, true)?;
        let charset = if reader.is_empty() { None } else { Some(reader.u16("character set")?) };
        let plugin = optional_name(&mut reader, capabilities.contains(Capabilities::PLUGIN_AUTH))?;
        Ok(Self { user, auth, schema, charset, plugin })
    }

    /// Appends the payload, command byte included.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.u8(0x11);
        out.nul_bytes(self.user);
        out.u8(self.auth.len() as u8);
        out.bytes(self.auth);
        out.nul_bytes(self.schema.unwrap_or_default());
        out.u16(self.charset.unwrap_or_default());
        out.nul_bytes(self.plugin.unwrap_or_default());
    }
}

#[cfg(test)]
#[path = "handshake_test.rs"]
mod tests;
