//! Times of an operation and of its floors.

use std::hint::black_box;
use std::time::Instant;

use sweeper_program::builtin::{Builtin, Call, CallArg, Slice, SliceMut};
use sweeper_workloads::ops;

use super::memory::{Lines, Operand, again, reading};

/// Batches where operands lie in one place, and places.
const BATCHES: usize = 9;
const PLACES: usize = 16;
const CALLS: usize = 100;

/// Seconds of one call.
fn batch(call: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..CALLS {
        call();
    }
    start.elapsed().as_secs_f64() / CALLS as f64
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Copies argument 0 to argument 1.
const COPY: Builtin = Builtin {
    name: "bench.copy",
    function: |call| call.write(1).copy_from_slice(call.read(0)),
};

/// Memory of a launch: the slices that it reads, its integers, and the number of bytes that it
/// touches.
pub(super) struct Launch<'a> {
    pub name: &'a str,
    pub builtin: Builtin,
    pub reads: Vec<Slice<'a>>,
    pub ints: Vec<i64>,
    pub bytes: usize,
    /// Elements that it reads and writes again, if it works in place.
    pub in_place: Option<usize>,
}

/// Launches a builtin with these arguments; the compiler does not know which one it is.
fn launch(builtin: Builtin, reads: &[Slice<'_>], writes: &mut [SliceMut<'_>], ints: &[i64]) {
    let mut args = Vec::with_capacity(reads.len() + writes.len() + ints.len());
    args.extend(reads.iter().map(|&slice| CallArg::Read(slice)));
    let writes = writes.iter_mut();
    args.extend(writes.map(|write| CallArg::Write(Some(again(write)))));
    args.extend(ints.iter().map(|&value| CallArg::Int(value)));
    black_box(builtin.function)(black_box(&mut Call::new(args)));
}

impl Launch<'_> {
    /// Times it, if its name has the word that the command line gives.
    pub(super) fn report(&self, writes: Vec<SliceMut<'_>>) {
        let name = format!("{} {}", self.builtin.name, self.name);
        let mut words = std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
        if words.next().is_some_and(|word| !name.contains(&word)) {
            return;
        }
        let mut lines = Lines(0);
        let mut times = [vec![], vec![], vec![]];
        for _ in 0..PLACES {
            self.batches(&writes, &mut lines, &mut times);
        }
        let [seconds, copy, in_place] = times.map(median);
        let own_floor = self.in_place.map_or(String::new(), |_| {
            let (floor, ratio) = (in_place * 1e6, seconds / in_place);
            format!(", in place {floor:>6.3} us {ratio:>5.2} x")
        });
        println!(
            "{name:<46} {:>7} B {:>7.3} us {:>6.1} GB/s, copy {:>6.3} us {:>5.2} x{own_floor}",
            self.bytes,
            seconds * 1e6,
            self.bytes as f64 / seconds / 1e9,
            copy * 1e6,
            seconds / copy
        );
    }

    /// Some batches of seconds of the operation, of a copy, and of a product in place, with
    /// operands elsewhere in memory.
    fn batches(&self, writes: &[SliceMut<'_>], lines: &mut Lines, times: &mut [Vec<f64>; 3]) {
        let mut place = |slice: Slice<'_>| Operand::of(slice, lines.next().unwrap_or(0));
        let reads: Vec<Operand> = self.reads.iter().map(|&read| place(read)).collect();
        let written = writes.iter().map(|write| place(reading(write)));
        let mut written: Vec<Operand> = written.collect();
        let ones = vec![1.0; (self.bytes / 8).max(1)];
        let (copied, mut copy) = (place(Slice::F32(&ones)), place(Slice::F32(&ones)));
        // In place it is a product with one number, in a register: the memory takes the time.
        let ones = vec![1.0; self.in_place.unwrap_or(1)];
        let (factor, mut kept) = (place(Slice::F32(&[1.0])), place(Slice::F32(&ones)));
        let mut flat = ints([1, 1, 1, ones.len(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        flat.resize(self.ints.len().max(14), 0);
        let reads: Vec<Slice<'_>> = reads.iter().map(Operand::read).collect();
        let mut written: Vec<SliceMut<'_>> = written.iter_mut().map(Operand::write).collect();
        let (copied, mut copy) = ([copied.read()], [copy.write()]);
        let (factor, mut kept) = ([factor.read()], [kept.write()]);
        for _ in 0..BATCHES {
            let mut own = || launch(self.builtin, &reads, &mut written, &self.ints);
            times[0].push(batch(&mut own));
            times[1].push(batch(&mut || launch(COPY, &copied, &mut copy, &flat)));
            let mut in_place = || launch(ops::MUL_IN_PLACE, &factor, &mut kept, &flat);
            times[2].push(batch(&mut in_place));
        }
    }
}

/// Arguments of a launch that are numbers.
pub(super) fn ints<const N: usize>(values: [usize; N]) -> Vec<i64> {
    values.iter().map(|&value| value as i64).collect()
}
