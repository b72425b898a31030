//! The paths that a stream knows, and the places in them at which it is.

mod recall;

use super::follow::Known;
use super::history::History;
use super::path::{Path, PathId};
use super::{Answer, Kind, Tensor};

/// Paths that are known at one time. One that was not followed for the longest time goes first.
const MOST_PATHS: usize = 64;

/// A path that was begun so often without being followed to its end begins after others.
const MANY_MISSES: u32 = 4;

/// Other places of a path, and other paths, that are tried where an operation is not the expected
/// one.
const TRIES: usize = 4;

/// Paths are followed on two tracks, so that iterations of an adopted path within those of one that
/// is not adopted are known to be both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Track {
    /// Of paths whose compiled program is there.
    Adopted,
    /// Of all others.
    Watched,
}

impl Track {
    const fn index(self) -> usize {
        self as usize
    }

    const fn other(self) -> Track {
        match self {
            Track::Adopted => Track::Watched,
            Track::Watched => Track::Adopted,
        }
    }
}

/// A place in a path.
#[derive(Clone, Copy, Debug)]
struct Follow {
    /// Position of the path.
    path: usize,
    /// Operations of the iteration that were followed.
    at: usize,
    /// Whether the caller holds these.
    is_held: bool,
}

/// The outcome of one operation on one track.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// The answer, if the operation is one of a path.
    pub answer: Option<Answer>,
    /// Held operations that are of no path after all.
    pub flushed: usize,
    /// Whether a path was followed up to here and is not any more.
    pub has_ended: bool,
}

const IDLE: Outcome = Outcome {
    answer: None,
    flushed: 0,
    has_ended: false,
};

#[derive(Debug, Default)]
pub(super) struct Tracks {
    known: Vec<Known>,
    /// Positions of paths, those with the longest period first.
    order: Vec<usize>,
    follows: [Option<Follow>; 2],
    /// Of each track, for each kind, how many paths begin with it.
    starts: [Vec<u8>; 2],
    /// Of each track, whether two of its paths begin with one kind.
    has_rivals: [bool; 2],
    next_id: u32,
    scratch: Vec<Tensor>,
    /// Whether an iteration was followed to its end since this was asked.
    has_completed: bool,
}

impl Tracks {
    pub(super) fn next_id(&self) -> PathId {
        PathId(self.next_id)
    }

    pub(super) fn get(&self, id: PathId) -> Option<&Known> {
        self.known.iter().find(|known| known.path.id == id)
    }

    fn position(&self, id: PathId) -> Option<usize> {
        self.known.iter().position(|known| known.path.id == id)
    }

    /// Whether an iteration was followed to its end since the last question.
    pub(super) fn take_completed(&mut self) -> bool {
        std::mem::take(&mut self.has_completed)
    }

    /// The answer to the operation that was recorded last, if it is the next one of the only path
    /// that is followed, and nothing else has to be done. `next` is the number of the one after it.
    #[inline]
    pub(super) fn go_on(
        &mut self,
        next: u64,
        kind: Kind,
        tensors: [&[Tensor]; 2],
    ) -> Option<Answer> {
        let (track, follow) = match &mut self.follows {
            [Some(follow), None] => (Track::Adopted, follow),
            [None, Some(follow)] => (Track::Watched, follow),
            _ => return None,
        };
        let starts = &self.starts[track.other().index()];
        let is_start = starts.get(kind.index()).is_some_and(|count| *count > 0);
        let has_rivals = follow.at == 0 && self.has_rivals[track.index()];
        let known = &mut self.known[follow.path];
        let changes_track = known.is_adopted != (track == Track::Adopted);
        let is_other = is_start || has_rivals || changes_track;
        if is_other || !known.advance(follow.at, kind, tensors) {
            return None;
        }
        follow.at += 1;
        if follow.at < known.period() {
            return Some(match follow.is_held {
                true => Answer::Hold,
                false => Answer::Run,
            });
        }
        let answer = match follow.is_held {
            true => Answer::Replace(known.path.id),
            false => Answer::Boundary(known.path.id),
        };
        follow.at = 0;
        follow.is_held = track == Track::Adopted;
        known.complete(next);
        self.has_completed = true;
        Some(answer)
    }

    /// Takes in the operation that was recorded last.
    pub(super) fn step(
        &mut self,
        track: Track,
        history: &History,
        kind: Kind,
        tensors: [&[Tensor]; 2],
    ) -> Outcome {
        let Some(follow) = self.follows[track.index()] else {
            return match self.is_start(track, kind) {
                true => self.start(track, history, kind, tensors, true),
                false => IDLE,
            };
        };
        let is_next = (follow.at > 0 || !self.has_rivals[track.index()])
            && self.known[follow.path].advance(follow.at, kind, tensors);
        match is_next {
            true => self.advanced(track, history),
            false => self.turn(track, follow, history, kind, tensors),
        }
    }

    fn is_start(&self, track: Track, kind: Kind) -> bool {
        let starts = self.starts[track.index()].get(kind.index());
        starts.is_some_and(|count| *count > 0)
    }

    /// Moves on by the operation that was found to be the next one.
    fn advanced(&mut self, track: Track, history: &History) -> Outcome {
        let Some(follow) = &mut self.follows[track.index()] else {
            return IDLE;
        };
        follow.at += 1;
        let known = &mut self.known[follow.path];
        let answer = match (follow.at == known.period(), follow.is_held) {
            (false, true) => Answer::Hold,
            (false, false) => Answer::Run,
            (true, true) => Answer::Replace(known.path.id),
            (true, false) => Answer::Boundary(known.path.id),
        };
        if follow.at == known.period() {
            follow.at = 0;
            known.complete(history.next());
            self.completed(track);
        }
        Outcome {
            answer: Some(answer),
            ..IDLE
        }
    }

    /// At the end of an iteration: a path that was adopted meanwhile changes the track, and paths
    /// within an adopted one are not watched.
    fn completed(&mut self, track: Track) {
        self.has_completed = true;
        let Some(follow) = &mut self.follows[track.index()] else {
            return;
        };
        match track {
            Track::Adopted => {
                follow.is_held = true;
                let period = self.known[follow.path].period();
                self.follows[Track::Watched.index()].take_if(|watched| {
                    let known = &self.known[watched.path];
                    known.period() < period && !known.is_adopted
                });
            }
            Track::Watched => {
                let path = follow.path;
                if self.known[path].is_adopted {
                    self.promote(path);
                }
            }
        }
    }

    /// Follows a watched path on the track of adopted ones, between two iterations.
    fn promote(&mut self, path: usize) {
        self.follows[Track::Watched.index()] = None;
        let is_free = self.follows[Track::Adopted.index()].is_none_or(|held| {
            held.at == 0 && self.known[held.path].period() < self.known[path].period()
        });
        if is_free {
            self.follows[Track::Adopted.index()] = Some(Follow {
                path,
                at: 0,
                is_held: true,
            });
        }
    }

    /// Whether a path is one of a track, and may be followed on it now.
    fn is_of(&self, track: Track, path: usize) -> bool {
        let known = &self.known[path];
        let is_followed = self.follows[track.other().index()].is_some_and(|it| it.path == path);
        let is_within = track == Track::Watched
            && self.follows[Track::Adopted.index()]
                .is_some_and(|held| self.known[held.path].period() > known.period());
        known.is_adopted == (track == Track::Adopted) && !is_followed && !is_within
    }

    /// Begins an iteration of the longest path that begins with an operation.
    #[cold]
    fn start(
        &mut self,
        track: Track,
        history: &History,
        kind: Kind,
        tensors: [&[Tensor]; 2],
        may_hold: bool,
    ) -> Outcome {
        for has_missed in [false, true] {
            for position in 0..self.order.len() {
                let path = self.order[position];
                let known = &self.known[path];
                let is_it = known.first_kind() == kind
                    && (known.misses >= MANY_MISSES) == has_missed
                    && self.is_of(track, path);
                if is_it && self.known[path].advance(0, kind, tensors) {
                    self.follows[track.index()] = Some(Follow {
                        path,
                        at: 0,
                        is_held: track == Track::Adopted && may_hold,
                    });
                    return self.advanced(track, history);
                }
            }
        }
        IDLE
    }

    /// Looks for the place at which a track is, where it is not the expected one.
    #[cold]
    fn turn(
        &mut self,
        track: Track,
        follow: Follow,
        history: &History,
        kind: Kind,
        tensors: [&[Tensor]; 2],
    ) -> Outcome {
        self.follows[track.index()] = None;
        if follow.at == 0 {
            let started = match self.is_start(track, kind) {
                true => self.start(track, history, kind, tensors, true),
                false => IDLE,
            };
            let goes_on = self.follows[track.index()].is_some_and(|new| new.path == follow.path);
            return Outcome {
                has_ended: !goes_on,
                ..started
            };
        }
        let known = &mut self.known[follow.path];
        known.misses = known.misses.saturating_add(1);
        let flushed = if follow.is_held { follow.at } else { 0 };
        if let Some(path) = self.other_with_beginning(track, follow, history) {
            self.follows[track.index()] = Some(Follow { path, ..follow });
            return Outcome {
                has_ended: true,
                ..self.advanced(track, history)
            };
        }
        let ended = match self.later_place(follow, history, kind) {
            Some(at) => {
                self.follows[track.index()] = Some(Follow {
                    at,
                    is_held: false,
                    ..follow
                });
                self.advanced(track, history)
            }
            None if self.is_start(track, kind) => {
                self.start(track, history, kind, tensors, flushed == 0)
            }
            None => IDLE,
        };
        Outcome {
            flushed,
            has_ended: true,
            ..ended
        }
    }

    /// Notes a path that was found in the operations from `from` on, where an iteration begins,
    /// with the values of the iteration before. Returns its number if it is new.
    pub(super) fn add(
        &mut self,
        path: Path,
        previous: Vec<u64>,
        history: &History,
        from: u64,
    ) -> Option<PathId> {
        if self.known.iter().any(|known| known.path.is_alike(&path)) {
            return None;
        }
        let (id, position) = self.insert(path, previous);
        self.resume(position, history, from);
        Some(id)
    }

    /// Notes a path that was found in another stream. Returns its number here.
    pub(super) fn know(&mut self, path: Path) -> PathId {
        let mut known = self.known.iter();
        if let Some(known) = known.find(|known| known.path.is_alike(&path)) {
            return known.path.id;
        }
        let previous = vec![0; path.names.len()];
        self.insert(path, previous).0
    }

    /// Notes a path, and returns its number and its position.
    fn insert(&mut self, path: Path, previous: Vec<u64>) -> (PathId, usize) {
        let id = path.id;
        self.next_id += 1;
        let known = Known::new(path, previous);
        let position = match self.replaceable() {
            Some(position) => {
                self.known[position] = known;
                position
            }
            None => {
                self.known.push(known);
                self.known.len() - 1
            }
        };
        self.renew();
        (id, position)
    }

    /// The position of the path that a new one takes the place of, if there are too many.
    fn replaceable(&self) -> Option<usize> {
        if self.known.len() < MOST_PATHS {
            return None;
        }
        let is_followed = |position: usize| {
            let mut follows = self.follows.iter().flatten();
            follows.any(|follow| follow.path == position)
        };
        let free = (0..self.known.len())
            .filter(|&position| !self.known[position].is_adopted && !is_followed(position));
        free.min_by_key(|&position| self.known[position].last_used)
    }

    /// Finds what follows from the known paths.
    fn renew(&mut self) {
        self.order = (0..self.known.len()).collect();
        self.order
            .sort_by_key(|&path| std::cmp::Reverse(self.known[path].period()));
        self.starts = [vec![], vec![]];
        for known in &self.known {
            let track = if known.is_adopted { 0 } else { 1 };
            let (starts, kind) = (&mut self.starts[track], known.first_kind().index());
            if starts.len() <= kind {
                starts.resize(kind + 1, 0);
            }
            starts[kind] = starts[kind].saturating_add(1);
        }
        let starts = self.starts.each_ref();
        self.has_rivals = starts.map(|starts| starts.iter().any(|count| *count > 1));
    }

    /// From now on iterations of a path are replaced. Returns whether there is the path.
    pub(super) fn adopt(&mut self, id: PathId) -> bool {
        let Some(path) = self.position(id) else {
            return false;
        };
        self.known[path].is_adopted = true;
        self.known[path].misses = 0;
        self.renew();
        let watched = self.follows[Track::Watched.index()];
        if watched.is_some_and(|watched| watched.path == path && watched.at == 0) {
            self.promote(path);
        }
        true
    }

    /// From now on iterations of a path are not replaced. Returns how many operations are held.
    pub(super) fn abandon(&mut self, id: PathId) -> usize {
        let Some(path) = self.position(id) else {
            return 0;
        };
        self.known[path].is_adopted = false;
        self.renew();
        let adopted = &mut self.follows[Track::Adopted.index()];
        let Some(follow) = adopted.take_if(|follow| follow.path == path) else {
            return 0;
        };
        let watched = &mut self.follows[Track::Watched.index()];
        watched.get_or_insert(Follow {
            is_held: false,
            ..follow
        });
        if follow.is_held { follow.at } else { 0 }
    }

    /// The caller runs what it holds. Returns how many operations these are.
    pub(super) fn flush(&mut self) -> usize {
        match &mut self.follows[Track::Adopted.index()] {
            Some(follow) if follow.is_held && follow.at > 0 => {
                follow.is_held = false;
                follow.at
            }
            _ => 0,
        }
    }
}
