//! The memory that the referee shares with one candidate: words by which calls are announced and
//! ended, and the tensors that it writes before each call.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapRaw;
use serde_json::{Value, json};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Data, Element, Tensors, with_element_type};

use crate::device::foreign::python::shared_file::SharedFile;

/// Bytes before the first tensor. `child/candidate.py` has the places of words, too.
const PAGE_BYTES: usize = 4096;

/// Bytes from one word that is waited for to the next: each has a cache line to itself.
const LINE_BYTES: usize = 64;

/// Where the table of results begins, in words.
const RESULTS: usize = 64;

/// The most results that a candidate can have.
pub(super) const MOST_RESULTS: usize = (PAGE_BYTES / 8 - RESULTS) / 2;

/// A word that one of both waits for: the number of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The call that is announced; the referee's.
    Announced,
    /// The call that the candidate waits for.
    Ready,
    /// The call whose inputs are there; the referee's.
    Written,
    /// The call before whose gate the candidate stands, and is at work.
    Awake,
    /// The call whose gate is open; the referee's.
    Opened,
    /// The call whose results are there.
    Rung,
}

/// A tensor in the page.
struct Place {
    spec: TensorSpec,
    offset: usize,
}

/// What an output has before a call.
enum Initial {
    /// Bits that are all set, which are no number.
    Poison,
    Input(String),
    Elements(Data),
}

/// The memory.
pub(super) struct Page {
    file: SharedFile,
    mapped: MmapRaw,
    inputs: Vec<Place>,
    outputs: Vec<(Place, Initial)>,
}

impl Page {
    /// Memory for the inputs and for those outputs that a candidate is given.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn new(
        inputs: &Tensors,
        request: &Value,
        outputs: &[TensorSpec],
    ) -> io::Result<Self> {
        let mut end = PAGE_BYTES;
        let mut place = |spec: TensorSpec| {
            let offset = end;
            end = (end + spec.size_bytes() as usize).next_multiple_of(PAGE_BYTES);
            Place { spec, offset }
        };
        let inputs = inputs.iter().map(|(name, held)| {
            place(TensorSpec {
                name: name.clone(),
                dtype: held.dtype(),
                shape: held.shape().to_vec(),
            })
        });
        let inputs = inputs.collect();
        let requested = request["outputs"].as_array().into_iter().flatten();
        let given = outputs.iter().zip(requested);
        let given = given.filter(|(_, asked)| asked["passed"].as_bool() == Some(true));
        let outputs = given
            .map(|(spec, asked)| (place(spec.clone()), initial(spec, &asked["initial"])))
            .collect();
        let file = SharedFile::sealed("sweeper-referee", end as u64)?;
        let mapped = MmapRaw::map_raw(file.file())?;
        Ok(Page {
            file,
            mapped,
            inputs,
            outputs,
        })
    }

    /// What the candidate's process is told of it.
    pub(super) fn description(&self, descriptor: i32, yields: bool) -> Value {
        let told = |place: &Place| {
            json!({
                "name": place.spec.name,
                "dtype": place.spec.dtype.name(),
                "shape": place.spec.shape,
                "offset": place.offset,
            })
        };
        json!({
            "descriptor": descriptor,
            "bytes": self.mapped.len(),
            "page_bytes": PAGE_BYTES,
            "yields": yields,
            "inputs": self.inputs.iter().map(told).collect::<Vec<_>>(),
            "outputs": self.outputs.iter().map(|(place, _)| told(place)).collect::<Vec<_>>(),
        })
    }

    /// The file of the memory.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.file.file().as_fd()
    }

    /// Bytes that are written before each call.
    pub(super) fn written_bytes(&self) -> u64 {
        let outputs = self.outputs.iter().map(|(place, _)| place);
        let places = self.inputs.iter().chain(outputs);
        places.map(|place| place.spec.size_bytes()).sum()
    }

    /// Writes the inputs of a call, and what outputs have before it.
    pub(super) fn write(&self, inputs: &Tensors) {
        for place in &self.inputs {
            if let Some(tensor) = inputs.get(&place.spec.name) {
                self.write_bytes(place, tensor.data().bytes());
            }
        }
        for (place, initial) in &self.outputs {
            match initial {
                Initial::Poison => self.poison(place),
                Initial::Input(name) => {
                    if let Some(tensor) = inputs.get(name) {
                        self.write_bytes(place, tensor.data().bytes());
                    }
                }
                Initial::Elements(elements) => self.write_bytes(place, elements.bytes()),
            }
        }
    }

    #[expect(unsafe_code, reason = "memory that is shared with another process")]
    fn write_bytes(&self, place: &Place, bytes: &[u8]) {
        let count = bytes.len().min(place.spec.size_bytes() as usize);
        // SAFETY: the place lies in the mapping, whose file is sealed against shrinking; no
        // reference to this memory is ever made, and what another process does to it meanwhile is
        // its fault.
        unsafe {
            let to = self.mapped.as_mut_ptr().add(place.offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, count);
        }
    }

    #[expect(unsafe_code, reason = "memory that is shared with another process")]
    fn poison(&self, place: &Place) {
        // SAFETY: as in `write_bytes`.
        unsafe {
            let to = self.mapped.as_mut_ptr().add(place.offset);
            std::ptr::write_bytes(to, 0xFF, place.spec.size_bytes() as usize);
        }
    }

    /// The number in a word.
    pub(super) fn load(&self, word: Word) -> u64 {
        self.atomic(word as usize * LINE_BYTES / 8)
            .load(Ordering::Acquire)
    }

    /// Puts a number into a word.
    pub(super) fn store(&self, word: Word, number: u64) {
        let word = self.atomic(word as usize * LINE_BYTES / 8);
        word.store(number, Ordering::Release);
    }

    /// Where the candidate says that a result lies: address and bytes.
    pub(super) fn result(&self, index: usize) -> (u64, u64) {
        let at = RESULTS + 2 * index;
        let word = |at: usize| self.atomic(at).load(Ordering::Relaxed);
        (word(at), word(at + 1))
    }

    #[expect(unsafe_code, reason = "memory that is shared with another process")]
    fn atomic(&self, at: usize) -> &AtomicU64 {
        assert!(at < PAGE_BYTES / 8, "a word of the page");
        // SAFETY: the page has room for it, is aligned, and is accessed here as atomic words alone.
        unsafe { &*self.mapped.as_ptr().cast::<AtomicU64>().add(at) }
    }
}

fn initial(spec: &TensorSpec, asked: &Value) -> Initial {
    if let Some(input) = asked["input"].as_str() {
        return Initial::Input(input.to_owned());
    }
    let Some(value) = asked["value"].as_f64() else {
        return Initial::Poison;
    };
    let count = spec.elements() as usize;
    Initial::Elements(
        with_element_type!(spec.dtype, T => Element::data(vec![T::from_f64(value); count])),
    )
}
