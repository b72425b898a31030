//! The grammar that all tables share: typed access to their keys, with a report of each mistake at
//! its place (`section`), expressions and the names in them, axes and their forms, and cases as
//! they are written, before any workload is looked up (`wire`).

pub(crate) mod axis;
pub(crate) mod expression;
pub(crate) mod forms;
pub(crate) mod json;
pub(crate) mod keys;
pub(crate) mod section;
pub(crate) mod wire;
