//! Verified, size-bounded storage of compiled kernels by content key.
//!
//! Many processes share one directory without a server. Ask for a [`Key`]: a [`Lookup::Hit`] is a
//! verified [`Entry`], a [`Lookup::Miss`] is the right to make it, which one thread of one process
//! has at a time. Any failure of the cache is a miss or a [`Warning`], never a wrong answer.
//!
//! Invariants, whichever process is killed at whichever moment:
//!
//! 1. Readers believe only files with the right checksum that echo the key. All other leftovers of
//!    a crash are misses.
//! 2. Names appear only by publishing closed files, and never replace one.
//! 3. Entries never change. They can only be deleted.
//! 4. Entries don't depend on each other.
//! 5. The queue, the counters and the account are derived and can be made again; the account errs
//!    high.
//! 6. Locks only save work.
//! 7. A process that loses a race uses its own bytes.

mod key;
mod entry;
mod format;
mod error;
mod cache;
mod store;
mod upstream;
mod source;
mod bundle;
mod flight;
mod evict;
mod pins;
mod scan;
mod queue;
mod account;
mod usage;
mod counters;
mod admin;
mod summary;
mod listing;
mod transfer;
mod explain;
mod layout;
mod record;
mod lock;
mod sys;
mod clock;

pub use admin::{BadEntry, Cleared, Collected, Stats, VerifyReport};
pub use cache::{Cache, CacheConfig, Lookup, Published, Slot, WorkingSet};
pub use counters::Counters;
pub use entry::{Artifact, Entry, Metadata};
pub use error::{CacheError, FindError, Warning};
pub use explain::{Catalog, Change, Difference, Explanation, Nearest};
pub use format::{Defect, Kind, MAX_ENTRY_BYTES, MAX_METADATA_BYTES};
pub use key::{Digest, EntryName, FieldDigest, Key, KeyBuilder};
pub use listing::EntryInfo;
pub use summary::Summary;
pub use sys::is_network;
pub use transfer::{Exported, Imported};
pub use usage::Usage;
