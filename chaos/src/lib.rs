//! The harness of tests, labs and benchmarks: starts real databases, HAProxy and built quorumsql binaries on loopback,
//! kills and restarts them, and speaks to them through public protocols only.
//!
//! Everything that it starts is stopped by pid when its handle is dropped, and ends with the thread that started it even
//! if that thread is killed. Every wait is for a condition, with a limit after which the test fails and says what it
//! waited for. A server that is not installed is a failure of set-up, not a skip: `deploy/test` installs them all.
#![forbid(unsafe_code)]

pub mod certificates;
pub mod cluster;
pub mod process;
pub mod servers;
