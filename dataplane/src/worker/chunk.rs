//! Owned buffers of a worker: what `Link::recv` returns and `Link::send` consumes.
//!
//! A buffer belongs to its worker's [`ChunkPool`] and goes back there when the chunk is dropped. Two sizes are pooled:
//! 16 KiB for requests and small answers and 64 KiB for answers that fill two of the former (hot-path.md section 7:
//! 64 KiB is the best size, 256 KiB falls out of the cache). Buffers stay initialised, so that no byte is cleared per use.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// Size of a buffer for requests and small answers.
pub const SMALL: usize = 16 * 1024;
/// Size of a buffer for answers that have filled two small ones.
pub const LARGE: usize = 64 * 1024;
/// Small buffers that a worker keeps for reuse (4 MiB); more are freed when they come back.
const KEEP_SMALL: usize = 256;
/// Large buffers that a worker keeps for reuse (2 MiB).
const KEEP_LARGE: usize = 32;

/// The buffers of one worker. Cheap to clone.
#[derive(Clone)]
pub struct ChunkPool {
    shelves: Rc<Shelves>,
}

struct Shelves {
    small: RefCell<Vec<Box<[u8]>>>,
    large: RefCell<Vec<Box<[u8]>>>,
    lent: Cell<usize>,
}

impl Default for ChunkPool {
    fn default() -> Self {
        Self::new()
    }
}

impl ChunkPool {
    /// An empty pool; buffers are allocated at first use.
    #[must_use]
    pub fn new() -> Self {
        Self { shelves: Rc::new(Shelves { small: RefCell::default(), large: RefCell::default(), lent: Cell::new(0) }) }
    }

    /// An empty chunk with room for 16 KiB, to write an answer or a command into.
    #[must_use]
    pub fn take(&self) -> Chunk {
        self.take_from(&self.shelves.small, SMALL)
    }

    /// An empty chunk with room for 64 KiB.
    #[must_use]
    pub fn take_large(&self) -> Chunk {
        self.take_from(&self.shelves.large, LARGE)
    }

    /// A chunk that holds a copy of `bytes`.
    #[must_use]
    pub fn copy_of(&self, bytes: &[u8]) -> Chunk {
        let mut chunk = if bytes.len() > SMALL { self.take_large() } else { self.take() };
        chunk.extend_from_slice(bytes);
        chunk
    }

    /// Pooled buffers that are in a chunk now. A waiting session owns none.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.shelves.lent.get()
    }

    fn take_from(&self, shelf: &RefCell<Vec<Box<[u8]>>>, size: usize) -> Chunk {
        let buffer = shelf.borrow_mut().pop().unwrap_or_else(|| vec![0; size].into_boxed_slice());
        self.shelves.lent.set(self.shelves.lent.get() + 1);
        Chunk { buffer, start: 0, end: 0, home: Some(Rc::clone(&self.shelves)) }
    }
}

impl fmt::Debug for ChunkPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkPool").field("lent", &self.lent()).finish_non_exhaustive()
    }
}

impl Shelves {
    fn put_back(&self, buffer: Box<[u8]>) {
        self.lent.set(self.lent.get().saturating_sub(1));
        let (shelf, keep) = match buffer.len() {
            SMALL => (&self.small, KEEP_SMALL),
            LARGE => (&self.large, KEEP_LARGE),
            _ => return,
        };
        let mut shelf = shelf.borrow_mut();
        if shelf.len() < keep {
            shelf.push(buffer);
        }
    }
}

/// An owned buffer; derefs to its filled bytes, which may be patched in place. Empty from `recv` = end of stream.
pub struct Chunk {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    home: Option<Rc<Shelves>>,
}

impl Chunk {
    /// A chunk around bytes that no pool owns (tests, rare large messages).
    #[must_use]
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        let end = bytes.len();
        Self { buffer: bytes.into_boxed_slice(), start: 0, end, home: None }
    }

    /// Drops the first `count` filled bytes.
    ///
    /// # Panics
    /// If fewer bytes are filled.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "advance beyond the filled bytes");
        self.start += count;
    }

    /// Keeps only the first `length` filled bytes; does nothing if there are fewer.
    pub fn truncate(&mut self, length: usize) {
        self.end = self.end.min(self.start.saturating_add(length));
    }

    /// Forgets the filled bytes.
    pub fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    /// Bytes of its buffer, filled or not.
    #[must_use]
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes that fit behind the filled ones without moving or growing.
    #[must_use]
    pub fn spare(&self) -> usize {
        self.buffer.len() - self.end
    }

    /// Appends `bytes`; moves the filled bytes to the front or grows (out of the pool) if there is no room.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.buffer[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Makes room for `additional` bytes behind the filled ones.
    pub fn reserve(&mut self, additional: usize) {
        if self.spare() >= additional {
            return;
        }
        let filled = self.end - self.start;
        if filled + additional <= self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
        } else {
            let mut grown = vec![0; (filled + additional).next_power_of_two()].into_boxed_slice();
            grown[..filled].copy_from_slice(&self.buffer[self.start..self.end]);
            let old = std::mem::replace(&mut self.buffer, grown);
            if let Some(home) = &self.home {
                // The grown buffer is counted as lent in the old one's place.
                home.put_back(old);
                home.lent.set(home.lent.get() + 1);
            }
        }
        self.start = 0;
        self.end = filled;
    }

    /// The room behind the filled bytes, for a read into it; `filled` afterwards says how much of it counts.
    pub(crate) fn spare_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.end..]
    }

    /// Counts `count` bytes of the spare room as filled.
    pub(crate) fn filled(&mut self, count: usize) {
        debug_assert!(count <= self.spare());
        self.end += count;
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.put_back(std::mem::take(&mut self.buffer));
        }
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }
}

impl DerefMut for Chunk {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").field("len", &self.len()).field("capacity", &self.buffer.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_chunk_is_used_again() {
        let pool = ChunkPool::new();
        let mut chunk = pool.take();
        chunk.extend_from_slice(b"abc");
        let place = chunk.as_ptr();
        assert_eq!((&chunk[..], pool.lent()), (&b"abc"[..], 1));
        drop(chunk);
        assert_eq!(pool.lent(), 0);
        let again = pool.take();
        assert!(again.is_empty());
        assert_eq!(again.buffer.as_ptr(), place);
    }

    #[test]
    fn advance_truncate_and_patch_work_on_the_filled_bytes() {
        let mut chunk = Chunk::from_vec(b"0123456789".to_vec());
        chunk.advance(2);
        chunk.truncate(5);
        chunk[0] = b'x';
        assert_eq!(&chunk[..], b"x3456");
        chunk.truncate(100);
        assert_eq!(chunk.len(), 5);
        chunk.clear();
        assert!(chunk.is_empty());
    }

    #[test]
    fn room_is_made_by_moving_then_by_growing() {
        let pool = ChunkPool::new();
        let mut chunk = pool.take();
        chunk.extend_from_slice(&[1; SMALL]);
        chunk.advance(SMALL - 4);
        chunk.extend_from_slice(&[2; 100]);
        assert_eq!((chunk.buffer.len(), chunk.len(), pool.lent()), (SMALL, 104, 1));
        chunk.extend_from_slice(&[3; SMALL]);
        assert_eq!((chunk.buffer.len(), chunk.len(), pool.lent()), (2 * SMALL, SMALL + 104, 1));
        assert_eq!((chunk[3], chunk[4], chunk[104]), (1, 2, 3));
        drop(chunk);
        assert_eq!(pool.lent(), 0);
        assert_eq!(pool.shelves.small.borrow().len(), 1);
    }

    #[test]
    fn the_pool_keeps_a_bounded_number() {
        let pool = ChunkPool::new();
        let chunks: Vec<Chunk> = (0..KEEP_SMALL + 10).map(|_| pool.take()).collect();
        let large: Vec<Chunk> = (0..KEEP_LARGE + 10).map(|_| pool.take_large()).collect();
        drop((chunks, large));
        assert_eq!((pool.shelves.small.borrow().len(), pool.shelves.large.borrow().len()), (KEEP_SMALL, KEEP_LARGE));
    }
}
