//! The tensors that the referee writes before each call: where they lie, and what they hold then.

use serde_json::{Value, json};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Data, Element, Tensors, with_element_type};

/// Each tensor begins at a multiple of this, in bytes.
const ALIGNMENT: usize = 4096;

/// A tensor, and where it begins.
struct Place {
    spec: TensorSpec,
    offset: usize,
}

/// What an output holds before a call.
pub(super) enum Initial {
    /// Bits that are all set, which are not a number.
    Poison,
    Input(String),
    Elements(Data),
}

/// What is written to a place.
pub(super) enum Content<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// So many bytes whose bits are all set.
    Poison(usize),
}

/// The tensors of one call: its inputs, and those outputs that it is given.
pub(super) struct Places {
    inputs: Vec<Place>,
    outputs: Vec<(Place, Initial)>,
    /// The bytes of all of them.
    bytes: usize,
}

impl Places {
    /// Places for inputs, and for those outputs of a request that a candidate is given.
    pub(super) fn new(inputs: &Tensors, request: &Value, outputs: &[TensorSpec]) -> Self {
        let inputs = inputs.iter().map(|(name, held)| TensorSpec {
            name: name.clone(),
            dtype: held.dtype(),
            shape: held.shape().to_vec(),
        });
        let requested = request["outputs"].as_array().into_iter().flatten();
        let given = outputs.iter().zip(requested);
        let given = given.filter(|(_, asked)| asked["passed"].as_bool() == Some(true));
        let outputs = given.map(|(spec, asked)| {
            let initial = initial(spec, &asked["initial"]);
            (spec.clone(), initial)
        });
        Self::of_buffers(inputs.collect(), outputs.collect())
    }

    /// Places for these inputs, and for outputs and other memory of a program with what each holds
    /// before a call.
    pub(super) fn of_buffers(inputs: Vec<TensorSpec>, outputs: Vec<(TensorSpec, Initial)>) -> Self {
        let mut bytes = 0;
        let inputs = inputs.into_iter().map(|spec| place(spec, &mut bytes));
        let inputs = inputs.collect();
        let outputs = outputs.into_iter();
        let outputs = outputs.map(|(spec, initial)| (place(spec, &mut bytes), initial));
        Places {
            inputs,
            outputs: outputs.collect(),
            bytes,
        }
    }

    /// Where a tensor begins, by its name, in bytes from the first.
    pub(super) fn offset(&self, name: &str) -> Option<usize> {
        let outputs = self.outputs.iter().map(|(place, _)| place);
        let mut all = self.inputs.iter().chain(outputs);
        let found = all.find(|place| place.spec.name == name);
        found.map(|place| place.offset)
    }

    /// The bytes that the tensors of a call take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of the tensors themselves.
    pub(super) fn written_bytes(&self) -> u64 {
        let outputs = self.outputs.iter().map(|(place, _)| place);
        let all = self.inputs.iter().chain(outputs);
        all.map(|place| place.spec.size_bytes()).sum()
    }

    /// What the candidate's process is told of them.
    pub(super) fn description(&self) -> Value {
        let told = |place: &Place| {
            json!({
                "name": place.spec.name,
                "dtype": place.spec.dtype.name(),
                "shape": place.spec.shape,
                "offset": place.offset,
                "bytes": place.spec.size_bytes(),
            })
        };
        json!({
            "set_bytes": self.bytes,
            "inputs": self.inputs.iter().map(told).collect::<Vec<_>>(),
            "outputs": self.outputs.iter().map(|(place, _)| told(place)).collect::<Vec<_>>(),
        })
    }

    /// Yields what each place holds before a call on these inputs, with its offset.
    ///
    /// # Errors
    /// Those of `write`.
    pub(super) fn fill<E>(
        &self,
        inputs: &Tensors,
        mut write: impl FnMut(usize, Content<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut write_all = |place: &Place, bytes: &[u8]| {
            let count = bytes.len().min(place.spec.size_bytes() as usize);
            write(place.offset, Content::Bytes(&bytes[..count]))
        };
        for place in &self.inputs {
            if let Some(tensor) = inputs.get(&place.spec.name) {
                write_all(place, tensor.data().bytes())?;
            }
        }
        for (place, initial) in &self.outputs {
            match initial {
                Initial::Poison => {}
                Initial::Input(name) => {
                    if let Some(tensor) = inputs.get(name) {
                        write_all(place, tensor.data().bytes())?;
                    }
                }
                Initial::Elements(elements) => write_all(place, elements.bytes())?,
            }
        }
        for (place, initial) in &self.outputs {
            if matches!(initial, Initial::Poison) {
                write(
                    place.offset,
                    Content::Poison(place.spec.size_bytes() as usize),
                )?;
            }
        }
        Ok(())
    }
}

/// The place of a tensor behind `bytes` of others, which then has it.
fn place(spec: TensorSpec, bytes: &mut usize) -> Place {
    let offset = *bytes;
    *bytes = (offset + spec.size_bytes() as usize).next_multiple_of(ALIGNMENT);
    Place { spec, offset }
}

fn initial(spec: &TensorSpec, asked: &Value) -> Initial {
    match (asked["input"].as_str(), asked["value"].as_f64()) {
        (Some(input), _) => Initial::Input(input.to_owned()),
        (None, Some(value)) => Initial::constant(spec, value),
        (None, None) => Initial::Poison,
    }
}

impl Initial {
    /// A number in each element.
    pub(super) fn constant(spec: &TensorSpec, value: f64) -> Self {
        let count = spec.elements() as usize;
        Initial::Elements(
            with_element_type!(spec.dtype, T => Element::data(vec![T::from_f64(value); count])),
        )
    }
}
