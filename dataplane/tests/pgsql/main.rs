//! PostgreSQL clients through the data plane, in front of a real PostgreSQL 15.

mod batches;
mod bytes;
mod crash;
mod custom;
mod digests;
mod extended;
mod fake;
mod isolation;
mod login;
mod loss;
mod names;
mod phases;
mod random;
mod raw;
mod routing;
mod simple;
mod state;
mod support;
