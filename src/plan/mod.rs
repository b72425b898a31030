//! Plan: what is compiled and measured for the points of a grid.

pub mod canonical;
pub mod published;
