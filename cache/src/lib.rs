//! Verified, size-bounded storage of compiled kernels by content key.
