//! Who this node is: the `identity` file and the layout of the data directory.
//!
//! The file is written once, by `init` or `join`, and never changed. A data directory that has none belongs to no cluster.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::error::StartError;

/// Cluster and node of a data directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// UUID of the cluster.
    pub cluster_id: String,
    /// Log index of the node's allocation (1 for the first node); never reused.
    pub node_id: u64,
    /// 1…127, carried by connection ids on the wire; free again when the node is removed.
    pub slot: u8,
    /// Name from the bootstrap file.
    pub name: String,
    /// Random per data directory: a node that lost its disk and comes back with another one is recognised by it.
    pub incarnation: String,
}

/// Where the parts of a data directory are.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn identity(&self) -> PathBuf {
        self.root.join("identity")
    }

    /// Where either log store keeps its files.
    pub(crate) fn raft(&self) -> PathBuf {
        self.root.join("raft")
    }

    /// Whether a log was ever made here, of either kind.
    pub(crate) fn has_log(&self) -> bool {
        ["log", "log.sqlite"].iter().any(|name| self.raft().join(name).exists())
    }

    /// Says why this directory's node is no member any more.
    pub(crate) fn removed(&self) -> PathBuf {
        self.root.join("removed")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.root.join("state.db")
    }

    pub(crate) fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    pub(crate) fn tls(&self) -> PathBuf {
        self.root.join("tls")
    }

    /// Creates the directories that a node needs. What is in them (accounts, keys) is for the node's user alone.
    pub(crate) fn create(&self) -> io::Result<()> {
        let new = !self.root.exists();
        for directory in [self.root.clone(), self.raft(), self.snapshots(), self.tls()] {
            fs::create_dir_all(directory)?;
        }
        // What is made durable in them later must not lose its directory.
        fs::File::open(self.root())?.sync_all()?;
        if let Some(parent) = self.root.parent().filter(|parent| new && !parent.as_os_str().is_empty()) {
            fs::File::open(parent)?.sync_all()?;
        }
        let mode = fs::metadata(&self.root)?.permissions().mode();
        if mode & 0o077 != 0 {
            fs::set_permissions(&self.root, fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    /// Whether nothing of a cluster is in the directory yet.
    pub(crate) fn is_empty(&self) -> bool {
        !self.identity().exists() && !self.has_log() && !self.state().exists()
    }
}

impl Identity {
    /// Reads the `identity` file.
    pub(crate) fn read(layout: &Layout) -> Result<Self, StartError> {
        let text = match fs::read_to_string(layout.identity()) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound && layout.is_empty() => return Err(StartError::Empty),
            Err(e) => return Err(StartError::Identity(format!("{}: {e}", layout.identity().display()))),
        };
        Self::parse(&text).ok_or_else(|| StartError::Identity(format!("{} is damaged", layout.identity().display())))
    }

    /// Writes the file: first beside, then renamed, so that it is whole or absent.
    pub(crate) fn write(&self, layout: &Layout) -> io::Result<()> {
        let target = layout.identity();
        let beside = target.with_extension("new");
        let mut file = fs::File::create(&beside)?;
        file.write_all(self.render().as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &target)?;
        fs::File::open(layout.root())?.sync_all()
    }

    fn render(&self) -> String {
        let Self { cluster_id, node_id, slot, name, incarnation } = self;
        format!("cluster_id = {cluster_id}\nnode_id = {node_id}\nslot = {slot}\nname = {name}\nincarnation = {incarnation}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |key: &str| {
            text.lines().find_map(|line| {
                let (name, value) = line.split_once('=')?;
                (name.trim() == key).then(|| value.trim().to_owned())
            })
        };
        let identity = Self {
            cluster_id: field("cluster_id")?,
            node_id: field("node_id")?.parse().ok()?,
            slot: field("slot")?.parse().ok()?,
            name: field("name")?,
            incarnation: field("incarnation")?,
        };
        (1..=127).contains(&identity.slot).then_some(identity)
    }
}

/// 16 random bytes as a version 4 UUID.
pub(crate) fn new_uuid() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Identity {
        Identity { cluster_id: "c".into(), node_id: 17, slot: 3, name: "node = three".into(), incarnation: "i".into() }
    }

    #[test]
    fn identity_survives_a_round_trip() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        layout.create().unwrap();
        sample().write(&layout).unwrap();
        assert_eq!(Identity::read(&layout).unwrap(), sample());
    }

    #[test]
    fn others_cannot_read_the_data_directory() {
        let directory = tempfile::tempdir().unwrap();
        for root in [directory.path().join("new"), directory.path().join("there")] {
            fs::create_dir_all(directory.path().join("there")).unwrap();
            fs::set_permissions(directory.path().join("there"), fs::Permissions::from_mode(0o755)).unwrap();
            Layout::new(&root).create().unwrap();
            assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700, "{}", root.display());
        }
    }

    #[test]
    fn empty_directory_is_told_apart_from_a_damaged_one() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        assert!(matches!(Identity::read(&layout), Err(StartError::Empty)));
        fs::write(layout.identity(), "node_id = x").unwrap();
        assert!(matches!(Identity::read(&layout), Err(StartError::Identity(_))));
    }
}
