//! The straight line, shown on real processes: node clusters in front of real databases, real clients, faults by signal.
//!
//! One binary, so that it links once. Each test has its own servers and its own net 127.A.B; none waits by sleeping.

mod bad_input;
mod busy;
mod clients;
mod demo;
mod diverge;
mod drain;
mod history;
mod leader_killed;
mod lone_node;
mod members;
mod random_admin;
mod replicated_rule;
mod soak;
mod storage;
mod support;
mod tls;
mod writers;
