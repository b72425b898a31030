//! The cache stays under its capacity, the least recently used entries go first, and the entries
//! that a run uses stay.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
};
use proptest::prelude::*;
use sweeper_cache::{Cache, CacheConfig, Lookup, Warning};

use crate::support::{
    artifact, config, disk_usage, entry_path, files, is_hit, key, open, payload, publish, store,
};

/// Sizes on disk of entries with payloads of these lengths: one, two or three units of 4096 and an
/// inode each.
const SIZES: [(usize, u64); 3] = [(1000, 4608), (5000, 8704), (9000, 12800)];

/// The rules in their plainest form.
struct Model {
    capacity: u64,
    /// Oldest first: key, size on disk, whether the open cache used it.
    entries: Vec<(u64, u64, bool)>,
}

impl Model {
    fn used(&self) -> u64 {
        self.entries.iter().map(|(_, bytes, _)| bytes).sum()
    }

    /// Wants a key, and publishes it if it isn't there. True for a hit.
    fn want(&mut self, n: u64, bytes: u64) -> bool {
        if let Some(at) = self.entries.iter().position(|&(key, ..)| key == n) {
            self.entries.remove(at);
            self.entries.push((n, bytes, true));
            return true;
        }
        if self.used() + bytes > self.capacity {
            let pinned: u64 = self
                .entries
                .iter()
                .filter(|entry| entry.2)
                .map(|entry| entry.1)
                .sum();
            if pinned + bytes > self.capacity {
                return false;
            }
            let goal = (self.capacity - self.capacity / 10).saturating_sub(bytes);
            while self.used() > goal {
                let Some(oldest) = self.entries.iter().position(|entry| !entry.2) else {
                    break;
                };
                self.entries.remove(oldest);
            }
        }
        if self.used() + bytes <= self.capacity {
            self.entries.push((n, bytes, true));
        }
        false
    }

    /// Deletes the oldest that nobody uses, until a tenth is free.
    fn collect(&mut self) {
        while self.used() > self.capacity - self.capacity / 10 {
            let Some(oldest) = self.entries.iter().position(|entry| !entry.2) else {
                return;
            };
            self.entries.remove(oldest);
        }
    }

    fn expect(&mut self, keys: &[u64]) {
        for key in keys {
            if let Some(at) = self.entries.iter().position(|entry| entry.0 == *key) {
                let (key, bytes, _) = self.entries.remove(at);
                self.entries.push((key, bytes, true));
            }
        }
    }

    fn reopen(&mut self) {
        for entry in &mut self.entries {
            entry.2 = false;
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Want(u64),
    Expect(Vec<u64>),
    Collect,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..15_u64).prop_map(Step::Want),
        1 => prop::sample::subsequence((0..15).collect::<Vec<u64>>(), 1..8).prop_map(Step::Expect),
        1 => Just(Step::Collect),
        2 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..60)
}

/// Looks a key up and publishes it on a miss. True for a hit.
fn want(cache: &Cache, n: u64, bytes: usize) -> bool {
    match cache.lookup(&key(n)) {
        Lookup::Hit(_) => true,
        Lookup::Miss(slot) => {
            let published = slot.publish(artifact(payload(n, bytes)));
            assert_eq!(published.stored, published.warning.is_none());
            false
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_behaves_as_the_model_does(steps in steps(), capacity in 10_000_u64..90_000) {
        let dir = tempfile::tempdir().unwrap();
        let mut model = Model { capacity, entries: Vec::new() };
        let mut cache = open(dir.path(), capacity);
        for step in steps {
            match step {
                Step::Want(n) => {
                    let (payload_bytes, disk_bytes) = SIZES[n as usize % SIZES.len()];
                    prop_assert_eq!(want(&cache, n, payload_bytes), model.want(n, disk_bytes));
                }
                Step::Expect(keys) => {
                    let set = cache.expect(&keys.iter().copied().map(key).collect::<Vec<_>>());
                    model.expect(&keys);
                    let is_there = |&&(n, ..): &&(u64, u64, bool)| keys.contains(&n);
                    let present: u64 = model.entries.iter().filter(is_there).map(|entry| entry.1).sum();
                    prop_assert_eq!(set.present.bytes, present);
                }
                Step::Collect => {
                    cache.gc(false).unwrap();
                    model.collect();
                }
                Step::Reopen => {
                    cache = open(dir.path(), capacity);
                    model.reopen();
                }
            }
            let mut expected: Vec<u64> = model.entries.iter().map(|&(n, ..)| n).collect();
            expected.sort_unstable();
            let present: Vec<u64> = (0..15).filter(|&n| cache.peek(&key(n)).is_some()).collect();
            prop_assert_eq!(present, expected);
            prop_assert_eq!(cache.stats().unwrap().disk_bytes, model.used());
            prop_assert!(disk_usage(dir.path()) <= model.used() && model.used() <= capacity);
        }
    }
}

/// The reason for pinning: under LRU alone, the second of these runs would find nothing.
#[test]
fn a_sweep_of_101_percent_finds_99_percent_the_next_time() {
    let dir = tempfile::tempdir().unwrap();
    let capacity = 100 * SIZES[0].1;
    let hits = || {
        let cache = open(dir.path(), capacity);
        (0..101).filter(|&n| want(&cache, n, SIZES[0].0)).count()
    };
    assert_eq!((hits(), hits(), hits()), (0, 100, 100));
}

/// In whatever order the next run asks: had the first that is missing been let in, a tenth of all
/// would have been evicted for it.
#[test]
fn a_sweep_that_says_what_it_needs_finds_98_percent_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let keys: Vec<_> = (0..202).map(key).collect();
    let sizes = |n: u64| SIZES[n as usize % SIZES.len()];
    let whole: u64 = (0..202).map(|n| sizes(n).1).sum();
    let capacity = whole - whole / 100;
    let hits = |order: &mut dyn Iterator<Item = u64>| {
        let cache = open(dir.path(), capacity);
        let set = cache.expect(&keys);
        assert_eq!(set.present.entries + set.missing, 202);
        let hits = order.filter(|&n| want(&cache, n, sizes(n).0)).count();
        (set, hits)
    };
    let (first, found) = hits(&mut (0..202));
    assert_eq!((first.missing, found), (202, 0));
    assert_eq!(first.estimated_bytes(1000), 202_000);
    for _ in 0..2 {
        let (set, backwards) = hits(&mut (0..202).rev());
        assert!(backwards >= 198, "{backwards}");
        assert_eq!(set.present.entries, backwards as u64);
        let estimate = set.estimated_bytes(1);
        assert!(
            estimate > capacity && estimate < whole + whole / 50,
            "{estimate}"
        );
        let (_, from_the_middle) = hits(&mut (0..202).map(|n| (n + 101) % 202));
        assert!(from_the_middle >= 198, "{from_the_middle}");
    }
}

/// Other processes evict in the order of uses.
#[test]
fn what_one_process_expects_another_one_does_not_evict_first() {
    let dir = tempfile::tempdir().unwrap();
    let capacity = fill(dir.path(), 50);
    let sweep = open(dir.path(), capacity);
    assert_eq!(sweep.expect(&[key(0), key(99)]).present.entries, 1);
    let other = open(dir.path(), capacity);
    store(&other, 1000, 10);
    assert!(other.peek(&key(0)).is_some() && other.peek(&key(1)).is_none());
}

#[test]
fn a_working_set_over_the_cap_is_said_with_both_sizes() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, disk_bytes) = SIZES[0];
    let capacity_bytes = 3 * disk_bytes + 100;
    let cache = open(dir.path(), capacity_bytes);
    for n in 0..3 {
        store(&cache, n, bytes);
    }
    for n in 3..5 {
        let published = publish(&cache, n, bytes);
        assert_eq!(published.entry.payload(), payload(n, bytes));
        let working_set_bytes = (n + 1) * disk_bytes;
        let expected = Warning::OverCapacity {
            working_set_bytes,
            capacity_bytes,
        };
        assert_eq!(
            (published.stored, published.warning),
            (false, Some(expected))
        );
    }
    // That isn't the end of storing: a later run has other wishes.
    assert_eq!(cache.warning(), None);
    assert!((0..3).all(|n| is_hit(&cache, &key(n))));
    let later = open(dir.path(), capacity_bytes);
    store(&later, 9, bytes);
}

#[test]
fn nothing_is_evicted_for_what_could_never_fit() {
    let dir = tempfile::tempdir().unwrap();
    store(&open(dir.path(), 20_000), 1, 1000);
    let cache = open(dir.path(), 20_000);
    assert!(!publish(&cache, 2, 50_000).stored);
    assert!(is_hit(&cache, &key(1)));
}

/// Fills a cache with `count` entries of the smallest size and closes it. Returns their size on
/// disk.
fn fill(dir: &Path, count: u64) -> u64 {
    let cache = open(dir, u64::MAX);
    for n in 0..count {
        store(&cache, n, 10);
    }
    let held = cache.stats().unwrap();
    assert_eq!(held.entries, count);
    held.disk_bytes
}

#[test]
fn one_publication_evicts_256_entries_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let capacity = fill(dir.path(), 600) + 100;
    let cache = open(dir.path(), capacity);
    let bytes = 399 * 4608;
    let published = publish(&cache, 1000, bytes);
    assert!(
        matches!(published.warning, Some(Warning::NoRoomYet { .. })),
        "{:?}",
        published.warning
    );
    assert_eq!(cache.stats().unwrap().session.evictions, 256);

    store(&cache, 1001, bytes);
    let stats = cache.stats().unwrap();
    let survivors = 600 - stats.session.evictions;
    assert_eq!(stats.entries, survivors + 1);
    // Down to nine tenths, and not one entry more; the oldest went.
    let low = capacity - capacity / 10;
    assert!(
        stats.disk_bytes <= low && stats.disk_bytes + 4608 > low,
        "{stats:?}"
    );
    assert!((0..600).all(|n| cache.peek(&key(n)).is_some() == (n >= 600 - survivors)));
}

/// With no time at all, each publication still gets a step further with the scan and then with
/// evicting.
#[test]
fn room_is_made_in_small_steps_too() {
    let dir = tempfile::tempdir().unwrap();
    let capacity = fill(dir.path(), 100);
    let hasty = CacheConfig {
        eviction_time: Duration::ZERO,
        ..config(dir.path(), capacity)
    };
    let cache = Cache::open(hasty).unwrap();
    let mut refused = 0;
    for n in 1000.. {
        assert!(disk_usage(dir.path()) <= capacity);
        match publish(&cache, n, 10).warning {
            None => break,
            Some(warning) => assert!(matches!(warning, Warning::NoRoomYet { .. }), "{warning}"),
        }
        refused += 1;
        assert!(refused < 300);
    }
    assert!(refused > 10, "{refused}");
    assert!(cache.peek(&key(0)).is_none());
    assert!(cache.peek(&key(99)).is_some());
}

#[test]
fn a_smaller_capacity_takes_effect() {
    let dir = tempfile::tempdir().unwrap();
    let capacity = fill(dir.path(), 50) / 2;
    let cache = open(dir.path(), capacity);
    store(&cache, 1000, 10);
    assert!(disk_usage(dir.path()) <= capacity);
    assert!(cache.peek(&key(0)).is_none() && cache.peek(&key(49)).is_some());
}

#[test]
fn a_use_saves_an_entry_from_an_older_queue() {
    let dir = tempfile::tempdir().unwrap();
    let capacity = fill(dir.path(), 50);
    // The first eviction makes the queue.
    store(&open(dir.path(), capacity), 1000, 10);
    assert!(!files(dir.path(), "gc").is_empty());
    let survivors: Vec<u64> = (0..50)
        .filter(|&n| open(dir.path(), capacity).peek(&key(n)).is_some())
        .collect();
    assert!(is_hit(&open(dir.path(), capacity), &key(survivors[0])));
    // Two rounds, because the first makes a tenth of room at once.
    let next = open(dir.path(), capacity);
    for n in 2000..2010 {
        assert!(publish(&next, n, 10).stored);
    }
    assert!(next.peek(&key(survivors[0])).is_some());
    assert!(next.peek(&key(survivors[1])).is_none());
}

/// On a network file system a use isn't written down each time, but this process knows of it.
#[test]
fn what_this_process_uses_stays_even_if_it_looks_old() {
    let dir = tempfile::tempdir().unwrap();
    let capacity = fill(dir.path(), 50);
    store(&open(dir.path(), capacity), 1000, 10);
    let cache = open(dir.path(), capacity);
    let oldest = (0..50).find(|&n| cache.peek(&key(n)).is_some()).unwrap();
    let path = entry_path(dir.path(), key(oldest).name());
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    assert!(is_hit(&cache, &key(oldest)));
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(before).unwrap();
    for n in 2000..2010 {
        store(&cache, n, 10);
    }
    assert!(cache.stats().unwrap().session.evictions > 0);
    assert!(path.exists() && cache.peek(&key(oldest + 1)).is_none());
}

#[test]
fn a_lost_account_is_counted_anew_when_it_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let held = fill(dir.path(), 20);
    for damage in [None, Some(vec![0xa5; 2000])] {
        let account = dir.path().join("v1/acct");
        match damage {
            None => fs::remove_file(&account).unwrap(),
            Some(bytes) => fs::write(&account, bytes).unwrap(),
        }
        let cache = open(dir.path(), held);
        assert!(publish(&cache, 1000, 10).stored);
        let stats = cache.stats().unwrap();
        let report = cache.verify(false).unwrap();
        assert_eq!(report.accounted, Some(report.actual));
        assert_eq!(
            (stats.disk_bytes, stats.entries),
            (report.actual.bytes, report.actual.entries)
        );
        assert!(stats.disk_bytes <= held);
        cache.clear().unwrap();
        fill(dir.path(), 20);
    }
}

#[test]
fn what_dead_writers_left_is_reaped() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), 100_000);
    store(&cache, 1, 10);
    let [fresh, old] = ["fresh", "old"].map(|name| dir.path().join("v1/tmp").join(name));
    for path in [&fresh, &old] {
        fs::write(path, "half an ent").unwrap();
    }
    let two_hours_ago = SystemTime::now() - Duration::from_secs(7200);
    fs::File::options()
        .write(true)
        .open(&old)
        .unwrap()
        .set_modified(two_hours_ago)
        .unwrap();
    // As long as another process publishes, only old files are known to be abandoned.
    let publishing = lock_byte(&dir.path().join("v1/lock/gc"), 1);
    cache.gc(false).unwrap();
    assert_eq!((fresh.exists(), old.exists()), (true, false));
    drop(publishing);
    cache.gc(false).unwrap();
    assert!(!fresh.exists());
    assert_eq!(cache.verify(false).unwrap().accounted.unwrap().entries, 1);
}

/// A process that died between linking an entry to its place and deleting the first name.
#[test]
fn a_second_name_of_an_entry_is_reaped_and_was_never_charged() {
    let dir = tempfile::tempdir().unwrap();
    let capacity = fill(dir.path(), 20);
    let second = dir.path().join("v1/tmp/left");
    fs::hard_link(entry_path(dir.path(), key(9).name()), &second).unwrap();
    let cache = open(dir.path(), capacity);
    store(&cache, 100, 10);
    assert!(!second.exists());
    let entries = files(dir.path(), "o").len() as u64;
    assert_eq!(cache.stats().unwrap().entries, entries);
}

/// Shares one byte of a lock file, as a process does that has reserved room and not yet published.
fn lock_byte(path: &Path, start: i64) -> fs::File {
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let byte = libc::flock {
        l_type: libc::F_RDLCK as i16,
        l_whence: 0,
        l_start: start,
        l_len: 1,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_OFD_SETLK(&byte)).unwrap();
    file
}
