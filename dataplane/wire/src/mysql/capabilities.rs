//! Capability bits and server status bits.

use std::ops::{BitAnd, BitOr, Not};

/// Capability flags, 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Capabilities(pub u32);

impl Capabilities {
    /// `CLIENT_LONG_PASSWORD`; MariaDB calls it `CLIENT_MYSQL`: not set = the server speaks MariaDB's extensions.
    pub const LONG_PASSWORD: Self = Self(1);
    /// Affected rows are the rows found.
    pub const FOUND_ROWS: Self = Self(1 << 1);
    /// Long column flags.
    pub const LONG_FLAG: Self = Self(1 << 2);
    /// The handshake response names a schema.
    pub const CONNECT_WITH_DB: Self = Self(1 << 3);
    /// `database.table.column` is not allowed.
    pub const NO_SCHEMA: Self = Self(1 << 4);
    /// zlib compression.
    pub const COMPRESS: Self = Self(1 << 5);
    /// ODBC behaviour.
    pub const ODBC: Self = Self(1 << 6);
    /// `LOAD DATA LOCAL INFILE`.
    pub const LOCAL_FILES: Self = Self(1 << 7);
    /// Spaces before `(`.
    pub const IGNORE_SPACE: Self = Self(1 << 8);
    /// Protocol 4.1.
    pub const PROTOCOL_41: Self = Self(1 << 9);
    /// `interactive_timeout` instead of `wait_timeout`.
    pub const INTERACTIVE: Self = Self(1 << 10);
    /// TLS.
    pub const SSL: Self = Self(1 << 11);
    /// No SIGPIPE.
    pub const IGNORE_SIGPIPE: Self = Self(1 << 12);
    /// Transactions, status flags in answers.
    pub const TRANSACTIONS: Self = Self(1 << 13);
    /// Was a flag for 4.1.
    pub const RESERVED: Self = Self(1 << 14);
    /// 4.1 authentication (also `RESERVED2`).
    pub const SECURE_CONNECTION: Self = Self(1 << 15);
    /// Several statements in one COM_QUERY.
    pub const MULTI_STATEMENTS: Self = Self(1 << 16);
    /// Several results to COM_QUERY.
    pub const MULTI_RESULTS: Self = Self(1 << 17);
    /// Several results to COM_STMT_EXECUTE.
    pub const PS_MULTI_RESULTS: Self = Self(1 << 18);
    /// Authentication plugins are named.
    pub const PLUGIN_AUTH: Self = Self(1 << 19);
    /// Connection attributes.
    pub const CONNECT_ATTRS: Self = Self(1 << 20);
    /// The authentication reply has a length-encoded length.
    pub const PLUGIN_AUTH_LENENC: Self = Self(1 << 21);
    /// Expired passwords.
    pub const EXPIRED_PASSWORDS: Self = Self(1 << 22);
    /// Session state in OK packets.
    pub const SESSION_TRACK: Self = Self(1 << 23);
    /// A result set ends with OK instead of EOF and has no EOF after its columns.
    pub const DEPRECATE_EOF: Self = Self(1 << 24);
    /// Column definitions may be left out.
    pub const OPTIONAL_RESULTSET_METADATA: Self = Self(1 << 25);
    /// zstd compression.
    pub const ZSTD: Self = Self(1 << 26);
    /// Attributes in COM_QUERY and COM_STMT_EXECUTE.
    pub const QUERY_ATTRIBUTES: Self = Self(1 << 27);
    /// Multi-factor authentication.
    pub const MULTI_FACTOR: Self = Self(1 << 28);
    /// A client can do TLS but did not.
    pub const SSL_VERIFY_SERVER_CERT: Self = Self(1 << 30);
    /// Options are remembered on reconnect.
    pub const REMEMBER_OPTIONS: Self = Self(1 << 31);

    /// Nothing.
    pub const NONE: Self = Self(0);

    /// What a server of this project offers without TLS and compression: mysql-dataplane 1.3 with PLUGIN_AUTH_LENENC and
    /// CONNECT_ATTRS, without QUERY_ATTRIBUTES and OPTIONAL_RESULTSET_METADATA (design.md section 12).
    pub const SERVER_DEFAULT: Self = Self(
        Self::LONG_PASSWORD.0
            | Self::FOUND_ROWS.0
            | Self::LONG_FLAG.0
            | Self::CONNECT_WITH_DB.0
            | Self::PROTOCOL_41.0
            | Self::IGNORE_SPACE.0
            | Self::INTERACTIVE.0
            | Self::IGNORE_SIGPIPE.0
            | Self::TRANSACTIONS.0
            | Self::RESERVED.0
            | Self::SECURE_CONNECTION.0
            | Self::MULTI_STATEMENTS.0
            | Self::MULTI_RESULTS.0
            | Self::PS_MULTI_RESULTS.0
            | Self::PLUGIN_AUTH.0
            | Self::CONNECT_ATTRS.0
            | Self::PLUGIN_AUTH_LENENC.0
            | Self::SESSION_TRACK.0
            | Self::DEPRECATE_EOF.0
            | Self::REMEMBER_OPTIONS.0,
    );

    /// `true` if all bits of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the bits of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without the bits of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Capabilities {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Capabilities {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for Capabilities {
    type Output = Self;

    fn not(self) -> Self {
        Self(!self.0)
    }
}

/// `SERVER_STATUS_*` bits of OK and EOF packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Status(pub u16);

impl Status {
    /// A transaction is open.
    pub const IN_TRANS: Self = Self(1);
    /// `autocommit` is on.
    pub const AUTOCOMMIT: Self = Self(2);
    /// Another result follows.
    pub const MORE_RESULTS: Self = Self(8);
    /// No good index was used.
    pub const NO_GOOD_INDEX: Self = Self(0x10);
    /// No index was used.
    pub const NO_INDEX: Self = Self(0x20);
    /// A cursor is open; rows come by COM_STMT_FETCH.
    pub const CURSOR_EXISTS: Self = Self(0x40);
    /// The cursor is at its end.
    pub const LAST_ROW_SENT: Self = Self(0x80);
    /// A schema was dropped.
    pub const DB_DROPPED: Self = Self(0x100);
    /// `NO_BACKSLASH_ESCAPES` is in `sql_mode`.
    pub const NO_BACKSLASH_ESCAPES: Self = Self(0x200);
    /// `ANSI_QUOTES` is in `sql_mode`; MariaDB says it, MySQL does not.
    pub const ANSI_QUOTES: Self = Self(0x8000);
    /// The metadata of a prepared statement changed.
    pub const METADATA_CHANGED: Self = Self(0x400);
    /// The statement was slow.
    pub const SLOW: Self = Self(0x800);
    /// The result holds OUT parameters.
    pub const PS_OUT_PARAMS: Self = Self(0x1000);
    /// The open transaction is read-only.
    pub const IN_TRANS_READONLY: Self = Self(0x2000);
    /// Session state data follow in this OK.
    pub const SESSION_STATE_CHANGED: Self = Self(0x4000);

    /// `true` if all bits of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the bits of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without the bits of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}
