//! Workloads and backends that a manifest declares: the user's kernels.
//!
//! `read` reads them into [`declaration`], which is plain data: a worker process gets
//! it as JSON. [`Declared`] has its expressions compiled, and is a workload like those of this
//! build. A workload of this build with backends of the user is one, too: it keeps its problems and
//! their identities.
//!
//! Reading order: [`declaration`], [`command_declaration`] and [`check`], `scope` (the names that
//! expressions use), `definition` (a declared problem), `fill` and `reference` (its inputs and its
//! right answer), `trial` (outputs that its check must refuse), `kernels` (a source and its
//! launches), `command` (a program that is started), `python` (a function and its arguments),
//! `space` (combinations of tuned values), `backend` (an implementation and its configurations),
//! `program` (a backend's program for a problem), `problem` (problems with such backends).

pub(crate) mod read;
pub mod declaration;
pub mod command_declaration;
pub mod check;
mod scope;
mod definition;
mod fill;
mod reference;
mod real_types;
mod trial;
mod template;
mod kernels;
mod command;
pub mod python;
mod space;
mod backend;
mod program;
mod problem;
mod workload;
pub mod signature;
pub mod draft;

pub(crate) use backend::backend_scope;
pub use command::CommandRequest;
pub(crate) use command::{command_scope, seconds_scope, size_name};
pub use command_declaration::SCRATCH_MARK;
pub(crate) use reference::reference_scope;
pub(crate) use scope::{fill_scope, problem_scope};
pub(crate) use space::configurations;
pub(crate) use workload::parameters;
pub use workload::{Declared, SourceKey};
