//! The input tensors of a problem on the device, and the given values of those that a program
//! updates: in memory of its own, so that no program is charged for it, and on the host where the
//! device has no room for it.

use std::collections::BTreeMap;
use std::rc::Rc;

use sweeper_program::{Program, Tensors};

use super::context::Context;
use super::driver::Fault;
use super::memory::{Allocation, Pool};
use super::sums::{Adder, Sums};

/// The input tensors of the bound problem, by name.
pub struct Inputs {
    all: BTreeMap<String, Input>,
    /// Memory of originals.
    originals: Pool,
}

struct Input {
    memory: Allocation,
    /// Sums over its given values.
    sums: Sums,
    /// Given values of tensors that a program updates.
    original: Option<Original>,
    /// Whether a program has updated it since.
    is_changed: bool,
}

enum Original {
    OnDevice(Allocation),
    OnHost(Vec<u8>),
}

impl Inputs {
    /// No inputs.
    ///
    /// # Errors
    /// The driver's; some virtual GPUs have no pools.
    pub fn new(context: &Rc<Context>) -> Result<Self, Fault> {
        Ok(Inputs {
            all: BTreeMap::new(),
            originals: Pool::new(context)?,
        })
    }

    /// Forgets all inputs.
    ///
    /// # Errors
    /// The driver's.
    pub fn clear(&mut self) -> Result<(), Fault> {
        self.all.clear();
        self.originals.trim()
    }

    /// Copies tensors to memory of a pool.
    ///
    /// # Errors
    /// The driver's.
    pub fn bind(&mut self, tensors: &Tensors, pool: &Pool, adder: &Adder) -> Result<(), Fault> {
        for (name, tensor) in tensors {
            let bytes = tensor.data().bytes();
            let memory = pool.allocate(bytes.len())?;
            memory.upload(bytes)?;
            let input = Input {
                sums: adder.sums(&memory, 0, bytes.len())?,
                memory,
                original: None,
                is_changed: false,
            };
            self.all.insert(name.clone(), input);
        }
        Ok(())
    }

    /// Brings given tensors together that a program reads as one, where they are not yet: programs
    /// may ask for different ones.
    ///
    /// # Errors
    /// The driver's.
    pub fn bring_together(&mut self, program: &Program, pool: &Pool) -> Result<(), Fault> {
        let mut has_moved = false;
        for together in &program.adjacent {
            let names = together.iter().map(|at| &*program.buffers[at.0].name);
            let places = names.clone().filter_map(|name| self.get(name));
            let places: Vec<(u64, usize)> = places
                .map(|memory| (memory.address(), memory.bytes()))
                .collect();
            let are_adjacent = |pair: &[(u64, usize)]| pair[0].0 + pair[0].1 as u64 == pair[1].0;
            if places.windows(2).all(are_adjacent) {
                continue;
            }
            let whole = pool.allocate(places.iter().map(|(_, bytes)| bytes).sum())?;
            let whole = Rc::new(whole);
            let mut offset = 0;
            for name in names {
                let Some(input) = self.all.get_mut(name) else {
                    continue;
                };
                let part = Allocation::part(&whole, offset, input.memory.bytes());
                part.copy(&input.memory)?;
                offset += part.bytes();
                input.memory = part;
            }
            has_moved = true;
        }
        match has_moved {
            true => pool.trim(),
            false => Ok(()),
        }
    }

    /// The memory of an input.
    pub fn get(&self, name: &str) -> Option<&Allocation> {
        self.all.get(name).map(|input| &input.memory)
    }

    /// Bytes of the inputs that a program does not read: they are in memory, but not for it.
    pub fn foreign_bytes(&self, program: &Program) -> u64 {
        let is_read = |name: &String| {
            let mut buffers = program.buffers.iter();
            buffers.any(|buffer| buffer.is_given() && buffer.name == *name)
        };
        let foreign = self.all.iter().filter(|(name, _)| !is_read(name));
        foreign.map(|(_, held)| held.memory.bytes() as u64).sum()
    }

    /// Keeps the given values of all tensors that a program updates.
    ///
    /// # Errors
    /// The driver's.
    pub fn keep_originals(&mut self, program: &Program) -> Result<(), Fault> {
        for buffer in program.updated() {
            let Some(input) = self.all.get_mut(&*buffer.name) else {
                continue;
            };
            if input.original.is_some() {
                continue;
            }
            let bytes = input.memory.bytes();
            input.original = Some(match self.originals.allocate(bytes) {
                Ok(copy) => {
                    copy.copy(&input.memory)?;
                    Original::OnDevice(copy)
                }
                Err(_) => Original::OnHost(input.memory.download(0, bytes)?),
            });
        }
        Ok(())
    }

    /// Moves the given values to the host, to make room on the device. Returns whether there was
    /// anything to move.
    ///
    /// # Errors
    /// The driver's.
    pub fn move_originals(&mut self) -> Result<bool, Fault> {
        let mut has_moved = false;
        for input in self.all.values_mut() {
            if let Some(Original::OnDevice(copy)) = &input.original {
                let bytes = copy.download(0, copy.bytes())?;
                input.original = Some(Original::OnHost(bytes));
                has_moved = true;
            }
        }
        self.originals.trim()?;
        Ok(has_moved)
    }

    /// Makes inputs that a program wrote and must not as they were given; their names. Those that
    /// a program updates are not looked at.
    ///
    /// # Errors
    /// The driver's.
    pub fn restore(&mut self, given: &Tensors, adder: &Adder) -> Result<Vec<String>, Fault> {
        let mut changed = Vec::new();
        for (name, tensor) in given {
            let bytes = tensor.data().bytes();
            let Some(input) = self.all.get(name) else {
                continue;
            };
            let is_changed = || {
                adder
                    .sums(&input.memory, 0, bytes.len())
                    .map(|it| it != input.sums)
            };
            if input.original.is_none() && is_changed()? {
                input.memory.upload(bytes)?;
                changed.push(name.clone());
            }
        }
        Ok(changed)
    }

    /// Overwrites inputs with other values of their shapes, where they lie.
    ///
    /// # Errors
    /// The driver's.
    pub fn rewrite(&mut self, given: &Tensors, adder: &Adder) -> Result<(), Fault> {
        for (name, tensor) in given {
            let Some(input) = self.all.get_mut(name) else {
                continue;
            };
            let bytes = tensor.data().bytes();
            input.memory.upload(bytes)?;
            input.sums = adder.sums(&input.memory, 0, bytes.len())?;
            match &mut input.original {
                Some(Original::OnDevice(copy)) => copy.upload(bytes)?,
                Some(Original::OnHost(held)) => *held = bytes.to_vec(),
                None => {}
            }
            input.is_changed = false;
        }
        Ok(())
    }

    /// Makes all inputs as they were given, before a run of a program that changes some of them.
    ///
    /// # Errors
    /// The driver's.
    pub fn restore_for(&mut self, program: &Program) -> Result<(), Fault> {
        for input in self.all.values_mut().filter(|input| input.is_changed) {
            match &input.original {
                Some(Original::OnDevice(copy)) => input.memory.copy(copy)?,
                Some(Original::OnHost(bytes)) => input.memory.upload(bytes)?,
                None => {}
            }
            input.is_changed = false;
        }
        for buffer in program.updated() {
            if let Some(input) = self.all.get_mut(&*buffer.name) {
                input.is_changed = true;
            }
        }
        Ok(())
    }
}
