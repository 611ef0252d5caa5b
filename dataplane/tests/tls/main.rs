//! TLS with real clients and real servers, with certificates that the test makes.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod clients;
mod servers;
mod support;
