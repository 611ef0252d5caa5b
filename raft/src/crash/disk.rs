//! The directory as a disk could look when power is lost at some point of a recording.
//!
//! What was made durable before that point is there. Of the rest, a disk may have anything: nothing, a beginning, single sectors;
//! names of files apart from their contents.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::Dice;

const SECTOR: u64 = 512;

/// How the disk treats what was not made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Loss {
    /// Contents are lost, names are there.
    Contents,
    /// Contents and names are lost.
    All,
    /// Everything up to some call is there, and a part of that call.
    Torn,
    /// Each call may be there, be lost, or be there in some of its sectors.
    Random,
}

impl Loss {
    pub(super) const ALL: [Self; 4] = [Self::Contents, Self::All, Self::Torn, Self::Random];
}

/// Files are numbered as they are created.
enum Event {
    Write { file: usize, at: u64, bytes: Vec<u8> },
    Size { file: usize, size: u64 },
    Durable { file: usize },
    DirectoryDurable(PathBuf),
    Create { file: usize, name: PathBuf },
    Directory(PathBuf),
    Rename { from: PathBuf, to: PathBuf },
    Unlink(PathBuf),
    Acknowledged(u64),
}

/// Everything that a process did to a directory, in order.
pub(super) struct Recording {
    events: Vec<Event>,
}

/// Compiles the recorder into `directory`.
pub(super) fn recorder(directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../chaos/power/recorder.c");
    let target = directory.join("recorder.so");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]).args([&target, &source]).output();
    let compiled = compiled.expect("cc is installed by deploy/test");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    target
}

impl Recording {
    /// Reads what the recorder wrote about `root`.
    pub(super) fn read(log: &Path, root: &Path) -> Self {
        let recorded = fs::read(log).unwrap();
        let (mut rest, mut events, mut files, mut acks) = (&recorded[..], Vec::new(), HashMap::new(), None);
        let mut count = 0;
        while !rest.is_empty() {
            let (head, after) = rest.split_at(21);
            let number = |range: std::ops::Range<usize>| u64::from_ne_bytes(head[range].try_into().unwrap());
            let (inode, at) = (number(1..9), number(9..17));
            let length = u32::from_ne_bytes(head[17..21].try_into().unwrap()) as usize;
            let (bytes, after) = after.split_at(length);
            rest = after;
            let name = |bytes: &[u8]| Path::new(std::str::from_utf8(bytes).unwrap()).strip_prefix(root).unwrap().to_owned();
            let file = files.get(&inode).copied();
            let file_of = || file.expect("a file is created before it is written");
            events.push(match head[0] {
                b'C' => {
                    files.insert(inode, count);
                    if name(bytes) == Path::new("acks") {
                        acks = Some(count);
                    }
                    count += 1;
                    Event::Create { file: count - 1, name: name(bytes) }
                }
                b'W' if file == acks => Event::Acknowledged(std::str::from_utf8(bytes).unwrap().trim().parse().unwrap()),
                b'W' => Event::Write { file: file_of(), at, bytes: bytes.to_vec() },
                b'T' => Event::Size { file: file_of(), size: at },
                b'F' => Event::Durable { file: file_of() },
                b'Y' => Event::DirectoryDurable(name(bytes)),
                b'M' => Event::Directory(name(bytes)),
                b'U' => Event::Unlink(name(bytes)),
                b'R' => {
                    let zero = bytes.iter().position(|byte| *byte == 0).unwrap();
                    Event::Rename { from: name(&bytes[..zero]), to: name(&bytes[zero + 1..]) }
                }
                other => panic!("unknown record {other}"),
            });
        }
        Self { events }
    }

    /// The same on a disk that does not make durable the files that were created under such a name.
    pub(super) fn deaf(mut self, suffix: &str) -> Self {
        let created = |event: &Event| match event {
            Event::Create { file, name } if name.to_string_lossy().ends_with(suffix) => Some(*file),
            _ => None,
        };
        let deaf: Vec<usize> = self.events.iter().filter_map(created).collect();
        assert!(!deaf.is_empty(), "no file {suffix}");
        self.events.retain(|event| !matches!(event, Event::Durable { file } if deaf.contains(file)));
        self
    }

    /// A point after the first acknowledgement.
    pub(super) fn point(&self, dice: &mut Dice) -> usize {
        let first = self.events.iter().position(|event| matches!(event, Event::Acknowledged(_))).unwrap();
        first + 1 + dice.below((self.events.len() - first) as u64) as usize
    }

    /// What was acknowledged before `point`.
    pub(super) fn acknowledged(&self, point: usize) -> u64 {
        let count = |event: &Event| match event {
            Event::Acknowledged(count) => Some(*count),
            _ => None,
        };
        self.events[..point].iter().rev().find_map(count).unwrap()
    }

    /// Makes the directory as it could be when power is lost before the event `point`.
    pub(super) fn lose_power(&self, point: usize, loss: Loss, dice: &mut Dice, into: &Path) {
        let events = &self.events[..point];
        let (mut durable_files, mut durable_names) = (HashMap::new(), HashMap::new());
        for (position, event) in events.iter().enumerate() {
            match event {
                Event::Durable { file } => drop(durable_files.insert(*file, position)),
                Event::DirectoryDurable(name) => drop(durable_names.insert(name.clone(), position)),
                _ => {}
            }
        }
        let cut = point.saturating_sub(dice.below(40) as usize);
        let mut disk = Disk::default();
        for (position, event) in events.iter().enumerate() {
            let durable = match event {
                Event::Write { file, .. } | Event::Size { file, .. } => durable_files.get(file).is_some_and(|at| *at > position),
                Event::Create { name, .. } | Event::Directory(name) | Event::Unlink(name) | Event::Rename { to: name, .. } => {
                    durable_names.get(name.parent().unwrap()).is_some_and(|at| *at > position)
                }
                Event::Durable { .. } | Event::DirectoryDurable(_) | Event::Acknowledged(_) => continue,
            };
            let is_name = !matches!(event, Event::Write { .. } | Event::Size { .. });
            let kept = match loss {
                _ if durable => Kept::Whole,
                Loss::Contents => {
                    if is_name {
                        Kept::Whole
                    } else {
                        Kept::Nothing
                    }
                }
                Loss::All => Kept::Nothing,
                Loss::Torn if position == cut => Kept::Beginning,
                Loss::Torn => {
                    if position < cut {
                        Kept::Whole
                    } else {
                        Kept::Nothing
                    }
                }
                Loss::Random => [Kept::Whole, Kept::Nothing, Kept::Sectors][dice.below(if is_name { 2 } else { 3 }) as usize],
            };
            disk.take(event, kept, dice);
        }
        disk.store(into);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Whole,
    Beginning,
    Sectors,
    Nothing,
}

/// What has arrived on the disk.
#[derive(Default)]
struct Disk {
    contents: Vec<Vec<u8>>,
    /// Files by name; `None` = a directory.
    names: BTreeMap<PathBuf, Option<usize>>,
    /// Which file has a name, whether the disk knows it or not.
    true_names: HashMap<PathBuf, usize>,
}

impl Disk {
    fn take(&mut self, event: &Event, kept: Kept, dice: &mut Dice) {
        let whole = matches!(kept, Kept::Whole);
        match event {
            Event::Write { file, at, bytes } => self.write(*file, *at, bytes, kept, dice),
            Event::Size { file, size } if whole => self.contents[*file].resize(*size as usize, 0),
            Event::Create { file, name } => {
                self.contents.resize_with(file + 1, Vec::new);
                self.true_names.insert(name.clone(), *file);
                if whole {
                    self.names.insert(name.clone(), Some(*file));
                }
            }
            Event::Directory(name) if whole => drop(self.names.insert(name.clone(), None)),
            Event::Unlink(name) if whole => drop(self.names.remove(name)),
            Event::Rename { from, to } => {
                let file = self.true_names.remove(from).expect("what is renamed has a name");
                self.true_names.insert(to.clone(), file);
                if whole {
                    self.names.remove(from);
                    self.names.insert(to.clone(), Some(file));
                }
            }
            _ => {}
        }
    }

    fn write(&mut self, file: usize, at: u64, bytes: &[u8], kept: Kept, dice: &mut Dice) {
        let content = &mut self.contents[file];
        let (end, mut from, torn_at) = (at + bytes.len() as u64, at, dice.below(bytes.len() as u64));
        while from < end {
            let to = end.min(from / SECTOR * SECTOR + SECTOR);
            let here = match kept {
                Kept::Whole => true,
                Kept::Nothing => false,
                Kept::Beginning => from - at < torn_at,
                Kept::Sectors => dice.below(2) == 0,
            };
            if here {
                if content.len() < to as usize {
                    content.resize(to as usize, 0);
                }
                content[from as usize..to as usize].copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
            }
            from = to;
        }
    }

    /// Directories sort before what is in them; what has lost its directory is lost.
    fn store(&self, root: &Path) {
        for (name, file) in &self.names {
            let path = root.join(name);
            match file {
                None if path.parent().is_some_and(Path::exists) => fs::create_dir(path).unwrap(),
                Some(file) if path.parent().is_some_and(Path::exists) => fs::write(path, &self.contents[*file]).unwrap(),
                _ => {}
            }
        }
    }
}
