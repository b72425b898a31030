//! A foreign file in the place of an entry is a miss and is set aside, without a panic or a wait.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    path::Path,
    sync::mpsc,
    thread,
    time::Duration,
};

use nix::{sys::stat::Mode, unistd::mkfifo};
use sweeper_cache::Cache;

use crate::support::{MIB, entry_path, files, is_hit, key, open, payload, store};

/// Replaces a stored entry, and expects a miss, its removal to `bad/`, and a cache that works.
fn replaced_by(replace: impl FnOnce(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    let path = entry_path(dir.path(), store(&cache, 1, 3000).name());
    fs::remove_file(&path).unwrap();
    replace(&path);
    let (sender, receiver) = mpsc::channel();
    let asked = cache.clone();
    thread::spawn(move || sender.send(is_hit(&asked, &key(1))));
    let answer = receiver.recv_timeout(Duration::from_secs(20));
    assert_eq!(answer, Ok(false), "a lookup neither hits nor blocks");
    assert!(path.symlink_metadata().is_err(), "it was set aside");
    assert_eq!(cache.stats().unwrap().session.quarantined, 1);
    works(&cache);
}

fn works(cache: &Cache) {
    store(cache, 1, 3000);
    assert!(is_hit(cache, &key(1)));
}

#[test]
fn a_symbolic_link_even_to_a_sound_entry() {
    let elsewhere = tempfile::tempdir().unwrap();
    let sound = entry_path(
        elsewhere.path(),
        store(&open(elsewhere.path(), MIB), 1, 3000).name(),
    );
    replaced_by(|path| symlink(&sound, path).unwrap());
    assert!(sound.exists());
}

#[test]
fn a_pipe_without_a_writer() {
    replaced_by(|path| mkfifo(path, Mode::S_IRWXU).unwrap());
}

#[test]
fn a_socket() {
    replaced_by(|path| {
        // The path of a socket is limited to 108 bytes, and so is made short.
        let short = path.parent().unwrap().join("s");
        UnixListener::bind(&short).unwrap();
        fs::rename(short, path).unwrap();
    });
}

#[test]
fn a_folder_with_something_in_it() {
    replaced_by(|path| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("x"), "y").unwrap();
    });
}

#[test]
fn an_empty_file_and_a_huge_one() {
    replaced_by(|path| fs::write(path, "").unwrap());
    replaced_by(|path| fs::File::create(path).unwrap().set_len(1 << 40).unwrap());
}

#[test]
fn two_entries_swapped() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    let [a, b] = [1, 2].map(|n| entry_path(dir.path(), store(&cache, n, 3000).name()));
    let aside = dir.path().join("aside");
    fs::rename(&a, &aside).unwrap();
    fs::rename(&b, &a).unwrap();
    fs::rename(&aside, &b).unwrap();
    assert!(!is_hit(&cache, &key(1)));
    assert!(!is_hit(&cache, &key(2)));
    assert_eq!(files(dir.path(), "bad").len(), 2);
}

#[test]
fn every_truncation_and_a_flipped_bit_in_every_byte_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    let path = entry_path(dir.path(), store(&cache, 1, 20).name());
    let sound = fs::read(&path).unwrap();
    let damaged = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        assert!(!is_hit(&cache, &key(1)));
        assert!(!path.exists());
    };
    for at in 0..sound.len() {
        damaged(&sound[..at]);
        let mut flipped = sound.clone();
        flipped[at] ^= 1 << (at % 8);
        damaged(&flipped);
    }
    assert_eq!(
        files(dir.path(), "bad").len(),
        32,
        "the quarantine is bounded"
    );
    fs::write(&path, &sound).unwrap();
    assert_eq!(cache.peek(&key(1)).unwrap().payload(), payload(1, 20));
}

#[test]
fn folders_that_somebody_tidied_away_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    let path = entry_path(dir.path(), store(&cache, 1, 20).name());
    fs::remove_dir(dir.path().join("v1/bad")).unwrap();
    fs::write(&path, "broken").unwrap();
    assert!(!is_hit(&cache, &key(1)));
    assert_eq!(files(dir.path(), "bad").len(), 1);
    fs::remove_dir_all(dir.path().join("v1/o")).unwrap();
    fs::create_dir(dir.path().join("v1/o")).unwrap();
    works(&cache);
}

#[test]
fn strangers_in_the_tree_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    let path = entry_path(dir.path(), store(&cache, 1, 20).name());
    let strangers = [
        dir.path().join("v1/o/README"),
        path.with_file_name("README"),
        path.with_extension("0123456789ABCDEF"),
    ];
    for stranger in &strangers {
        fs::write(stranger, "mine").unwrap();
    }
    assert!(is_hit(&cache, &key(1)));
    let mut expected = strangers.to_vec();
    expected.sort();
    let report = cache.verify(true).unwrap();
    assert_eq!((report.foreign, report.bad.len()), (expected, 0));
    cache.clear().unwrap();
    assert!(strangers.iter().all(|stranger| stranger.exists()));
    assert!(!path.exists());
}
