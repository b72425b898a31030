//! Mistakes of the backend that made a program, found before it runs.

use std::collections::BTreeSet;

use super::{ADJACENT_ALIGNMENT, Arg, Binding, BufferId, Index, Program, Step, View};

impl Program {
    /// Looks for mistakes of the backend that made the program.
    ///
    /// # Errors
    /// The first mistake: a view outside its buffer and those behind it, a loop that does not
    /// exist, a given buffer that is written, arguments of one launch that overlap.
    pub fn validate(&self) -> Result<(), String> {
        self.validate_adjacent()?;
        self.validate_steps(&self.prologue, &mut Vec::new())?;
        self.validate_steps(&self.steps, &mut Vec::new())
    }

    fn validate_adjacent(&self) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for &BufferId(at) in self.adjacent.iter().flatten() {
            let Some(buffer) = self.buffers.get(at) else {
                return Err(format!("there is no buffer {at}"));
            };
            let is_aligned = (buffer.size_bytes() as usize).is_multiple_of(ADJACENT_ALIGNMENT);
            if !buffer.is_given() || !is_aligned || !seen.insert(at) {
                let name = &buffer.name;
                return Err(format!("`{name}` can not lie behind another buffer"));
            }
        }
        Ok(())
    }

    /// Elements from the first of a buffer to the last that a view of it may reach.
    fn reach(&self, buffer: BufferId) -> usize {
        let found = self.adjacent.iter().find_map(|together| {
            let at = together.iter().position(|&other| other == buffer)?;
            Some(&together[at..])
        });
        let own = &self.buffers[buffer.0];
        found.map_or(own.len, |from_here| {
            let lens = from_here.iter().map(|other| self.buffers[other.0].len);
            lens.sum()
        })
    }

    fn validate_steps(&self, steps: &[Step], counts: &mut Vec<u64>) -> Result<(), String> {
        for step in steps {
            match step {
                Step::Repeat { count, body } => {
                    counts.push(*count);
                    self.validate_steps(body, counts)?;
                    counts.pop();
                }
                Step::Launch { kernel, args, .. } => {
                    if kernel.0 >= self.kernels.len() {
                        return Err(format!("there is no kernel {}", kernel.0));
                    }
                    for arg in args {
                        match arg {
                            Arg::Read(view) => self.validate_view(view, false, counts)?,
                            Arg::Write(view) => self.validate_view(view, true, counts)?,
                            Arg::Int(index) => validate_depth(index, counts)?,
                            Arg::Float(_) | Arg::Scalar(_) => {}
                        }
                    }
                }
                Step::Copy { from, to } => {
                    self.validate_view(from, false, counts)?;
                    self.validate_view(to, true, counts)?;
                    if from.len != to.len {
                        return Err(format!("a copy of {} elements to {}", from.len, to.len));
                    }
                }
                Step::Fill { view, .. } => self.validate_view(view, true, counts)?,
            }
        }
        Ok(())
    }

    /// Checks that a view stays inside its buffer in every iteration, by the range of its offset.
    fn validate_view(&self, view: &View, written: bool, counts: &[u64]) -> Result<(), String> {
        let Some(buffer) = self.buffers.get(view.buffer.0) else {
            return Err(format!("there is no buffer {}", view.buffer.0));
        };
        if written && buffer.binding == Binding::Given {
            return Err(format!("`{}` is given, and written", buffer.name));
        }
        validate_depth(&view.offset, counts)?;
        let Some((least, most)) = view.offset.range(counts) else {
            return Ok(());
        };
        let reach = match written {
            true => buffer.len,
            false => self.reach(view.buffer),
        };
        if least < 0 || most as usize + view.len > reach {
            return Err(format!(
                "views of {} elements from {least} to {most} of `{}`, which has {}",
                view.len, buffer.name, buffer.len
            ));
        }
        Ok(())
    }
}

fn validate_depth(index: &Index, counts: &[u64]) -> Result<(), String> {
    if index.depth() > counts.len() {
        return Err(format!(
            "an index needs {} loops, there are {}",
            index.depth(),
            counts.len()
        ));
    }
    Ok(())
}
