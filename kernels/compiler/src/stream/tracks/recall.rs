//! Where in its paths a stream is, found in operations that were recorded.

use super::{Follow, TRIES, Track, Tracks};
use crate::stream::Kind;
use crate::stream::history::History;
use crate::stream::path::tensors;

impl Tracks {
    /// Another path of a track that begins with the operations that were followed and the one after
    /// them.
    pub(super) fn other_with_beginning(
        &mut self,
        track: Track,
        follow: Follow,
        history: &History,
    ) -> Option<usize> {
        let first = self.known[follow.path].first_kind();
        let others = self.order.iter().copied().filter(|&path| {
            let known = &self.known[path];
            path != follow.path
                && known.first_kind() == first
                && known.period() > follow.at
                && self.is_of(track, path)
        });
        let others: Vec<usize> = others.take(TRIES).collect();
        let from = history.next() - 1 - follow.at as u64;
        let mut others = others.into_iter();
        others.find(|&path| self.compare(path, history, from).is_some())
    }

    /// A place of a path that is at after fewer operations than were followed, where that is with
    /// the operation after them.
    pub(super) fn later_place(
        &mut self,
        follow: Follow,
        history: &History,
        kind: Kind,
    ) -> Option<usize> {
        let mut at = follow.at;
        for _ in 0..TRIES {
            at = self.known[follow.path].border(at);
            if at == 0 {
                return None;
            }
            let from = history.next() - 1 - at as u64;
            if self.known[follow.path].kind(at) == kind
                && self.compare(follow.path, history, from).is_some()
            {
                return Some(at);
            }
        }
        None
    }

    /// Follows a path from an operation on, with which an iteration begins, up to the last one that
    /// was recorded. Returns the place, if all were the expected ones; the place of the last one
    /// is that before it was followed if there are no others after the iteration.
    fn compare(&mut self, path: usize, history: &History, from: u64) -> Option<usize> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let known = &mut self.known[path];
        let mut place = Some(0);
        for at in from..history.next() {
            let Some(now) = place else {
                break;
            };
            tensors(history, at, &mut scratch);
            let record = history.record(at);
            let (operands, results) = scratch.split_at(record.operands as usize);
            place = known
                .advance(now, record.kind, [operands, results])
                .then_some(now + 1);
            if place == Some(known.period()) && at + 1 < history.next() {
                known.complete(at + 1);
                place = Some(0);
            }
        }
        self.scratch = scratch;
        place
    }

    /// Follows a path from an operation on, with which an iteration begins, up to now, and goes on
    /// with it. Returns whether all operations were the expected ones.
    pub(super) fn resume(&mut self, path: usize, history: &History, from: u64) -> bool {
        let Some(mut at) = self.compare(path, history, from) else {
            return false;
        };
        let known = &mut self.known[path];
        if at == known.period() {
            known.complete(history.next());
            at = 0;
        }
        let is_held = known.is_adopted && at == 0;
        let follow = Follow { path, at, is_held };
        match known.is_adopted {
            // Operations of another path may be held.
            true => {
                self.follows[Track::Adopted.index()].get_or_insert(follow);
            }
            false => self.follows[Track::Watched.index()] = Some(follow),
        }
        true
    }

    /// Whether a known path has the last operations before `next` as an iteration; then it is
    /// followed from now on.
    pub(in crate::stream) fn find(&mut self, period: u64, history: &History, next: u64) -> bool {
        for position in 0..self.known.len() {
            let known = &self.known[position];
            if known.period() as u64 != period {
                continue;
            }
            let mut follows = self.follows.iter().flatten();
            if follows.any(|follow| follow.path == position) {
                if known.last_used + 2 * period > next {
                    return true;
                }
                continue;
            }
            for from in self.places(position, history, next - 2 * period, next) {
                if self.is_iteration(position, history, from) {
                    self.resume(position, history, from);
                    return true;
                }
            }
        }
        false
    }

    /// Where the kinds of a path begin within some operations (Knuth, Morris and Pratt).
    fn places(&self, path: usize, history: &History, from: u64, to: u64) -> Vec<u64> {
        let known = &self.known[path];
        let mut found = vec![];
        let mut length = 0;
        for at in from..to {
            let kind = history.record(at).kind;
            while length > 0 && (length == known.period() || known.kind(length) != kind) {
                length = known.border(length);
            }
            length += usize::from(known.kind(length) == kind);
            if length == known.period() && found.len() < TRIES {
                found.push(at + 1 - length as u64);
            }
        }
        found
    }

    /// Whether the operations from `from` on are an iteration of a path.
    fn is_iteration(&mut self, path: usize, history: &History, from: u64) -> bool {
        let mut scratch = std::mem::take(&mut self.scratch);
        let known = &mut self.known[path];
        let period = known.period();
        let is_next = |place: usize| {
            tensors(history, from + place as u64, &mut scratch);
            let record = history.record(from + place as u64);
            let (operands, results) = scratch.split_at(record.operands as usize);
            known.advance(place, record.kind, [operands, results])
        };
        let is_iteration = (0..period).all(is_next);
        self.scratch = scratch;
        is_iteration
    }
}
