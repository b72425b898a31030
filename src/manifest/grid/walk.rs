//! Walking one case: every combination in order, with the verdict of the rules.
//!
//! The order is that of the dimensions, the last fastest; then backends, then phases, so that all
//! variants of a problem stand together.

use sweeper_program::Phase;

use super::point::{Layout, Point};
use crate::model::case::{Case, Dimension, VARIANTS};
use sweeper_model::expression::{EvalError, Operand};
use sweeper_model::tuning::family_of;

/// The verdict of a case's rules on a combination.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// The combination is a point.
    Kept,
    /// Rule `n` of `exclude` holds.
    Excluded(usize),
    /// An expression has no value.
    Failed(Part, EvalError),
}

/// Whether a combination was listed as an extra point, and makes a difference as such.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Extra {
    No,
    /// The rules had left it out.
    Overruled(Verdict),
    /// The combination is not in the grid.
    New,
}

/// An expression of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    When(usize),
    Derived(usize),
    Exclude(usize),
}

/// A combination that exists.
pub(crate) struct Visit<'a, 'm> {
    pub(crate) code: u64,
    pub(crate) backend: usize,
    pub(crate) phase: Phase,
    pub(crate) verdict: Verdict,
    /// Whether it was listed as an extra point.
    pub(crate) extra: Extra,
    pub(crate) slots: &'a [Operand<'m>],
}

/// A walk over a case.
pub(crate) struct Walker<'m, 'l> {
    case: &'m Case,
    layout: &'l Layout,
    slots: Vec<Operand<'m>>,
    /// Extra points, sorted, and whether the walk met them.
    extras: Vec<(u64, usize, Phase)>,
    met: Vec<bool>,
}

impl<'m, 'l> Walker<'m, 'l> {
    /// A walk over `case`.
    pub(crate) fn new(case: &'m Case, layout: &'l Layout) -> Self {
        let mut walker = Walker::bare(case, layout);
        walker.find_extras();
        walker
    }

    /// A walker for single points.
    pub(crate) fn bare(case: &'m Case, layout: &'l Layout) -> Self {
        let slots =
            vec![Operand::Bool(false); VARIANTS + case.variables.len() + case.derived.len()];
        let mut walker = Walker {
            case,
            layout,
            slots,
            extras: Vec::new(),
            met: Vec::new(),
        };
        walker.slots[2] = Operand::Text(case.dtype.name());
        walker.slots[3] = Operand::Text(case.workload.info.name);
        walker
    }

    /// The values of a point, by slot: variants, variables, derived values.
    ///
    /// # Errors
    /// A derived value that has none.
    pub(crate) fn at(
        &mut self,
        code: u64,
        backend: usize,
        phase: Phase,
    ) -> Result<&[Operand<'m>], EvalError> {
        self.variant(backend, phase);
        for index in 0..self.case.dimensions.len() {
            self.place(index, self.layout.digit(code, index));
        }
        self.derive().map_err(|(_, error)| error)?;
        Ok(&self.slots)
    }

    /// The values of a point of this case.
    ///
    /// # Errors
    /// As [`Walker::at`].
    pub(crate) fn of(&mut self, point: Point) -> Result<&[Operand<'m>], EvalError> {
        self.at(point.code, usize::from(point.backend), point.phase)
    }

    /// Calls `visit` with every combination that exists, in order; extra points last.
    pub(crate) fn run(mut self, mut visit: impl FnMut(Visit<'_, 'm>)) {
        let case = self.case;
        let mut digits = vec![0; case.dimensions.len()];
        loop {
            for (backend, _) in case.backends.iter().enumerate() {
                for phase in &case.phases {
                    self.combination(&digits, backend, *phase, &mut visit);
                }
            }
            if !self.advance(&mut digits) {
                break;
            }
        }
        for index in 0..self.extras.len() {
            if self.met[index] {
                continue;
            }
            let (code, backend, phase) = self.extras[index];
            let verdict = match self.at(code, backend, phase) {
                Ok(_) => Verdict::Kept,
                Err(error) => Verdict::Failed(Part::Derived(0), error),
            };
            visit(Visit {
                code,
                backend,
                phase,
                verdict,
                extra: Extra::New,
                slots: &self.slots,
            });
        }
    }

    /// Moves to the next combination of rows; false after the last.
    fn advance(&mut self, digits: &mut [usize]) -> bool {
        for (digit, dimension) in digits.iter_mut().zip(&self.case.dimensions).rev() {
            *digit += 1;
            if *digit < dimension.swept {
                return true;
            }
            *digit = 0;
        }
        false
    }

    fn combination(
        &mut self,
        digits: &[usize],
        backend: usize,
        phase: Phase,
        visit: &mut impl FnMut(Visit<'_, 'm>),
    ) {
        self.variant(backend, phase);
        let mut failed = None;
        let mut code = 0;
        let placed = self.place_all(digits, &mut code);
        let verdict = match placed {
            // Where a dimension does not exist, its first row alone stands for "not there".
            Ok(false) => return,
            Ok(true) => self.derive(),
            Err(failure) => Err(failure),
        };
        let mut verdict = match verdict {
            Ok(()) => self.judge(),
            Err((part, error)) => {
                failed = Some(part);
                Verdict::Failed(part, error)
            }
        };
        let mut extra = Extra::No;
        if let Ok(index) = self.extras.binary_search(&(code, backend, phase)) {
            self.met[index] = true;
            if verdict != Verdict::Kept && failed.is_none() {
                extra = Extra::Overruled(std::mem::replace(&mut verdict, Verdict::Kept));
            }
        }
        visit(Visit {
            code,
            backend,
            phase,
            verdict,
            extra,
            slots: &self.slots,
        });
    }

    /// Places the rows and forms the code. False if this combination is not one of its own.
    fn place_all(&mut self, digits: &[usize], code: &mut u64) -> Result<bool, (Part, EvalError)> {
        let case = self.case;
        for (index, digit) in digits.iter().enumerate() {
            self.place(index, *digit);
        }
        for (index, dimension) in case.dimensions.iter().enumerate() {
            let digit = self.existing(index, dimension, digits[index])?;
            if digit != digits[index] {
                if digits[index] != 0 {
                    return Ok(false);
                }
                self.place(index, digit);
            }
            *code += digit as u64 * self.layout.stride(index);
        }
        Ok(true)
    }

    /// The digit of a dimension where it may not exist.
    fn existing(
        &self,
        index: usize,
        dimension: &'m Dimension,
        digit: usize,
    ) -> Result<usize, (Part, EvalError)> {
        let Some(conditional) = &dimension.when else {
            return Ok(digit);
        };
        match conditional.condition.holds(&self.slots) {
            Ok(true) => Ok(digit),
            Ok(false) => Ok(dimension.rows.len()),
            Err(error) => Err((Part::When(index), error)),
        }
    }

    fn variant(&mut self, backend: usize, phase: Phase) {
        self.slots[0] = Operand::Text(family_of(self.case.backends[backend].0.name));
        self.slots[1] = Operand::Text(phase.name());
    }

    /// Puts a row of a dimension into its slots.
    fn place(&mut self, index: usize, digit: usize) {
        let dimension: &'m Dimension = &self.case.dimensions[index];
        let row = match (dimension.rows.get(digit), &dimension.when) {
            (Some(row), _) => row,
            (None, Some(conditional)) => &conditional.otherwise,
            (None, None) => return,
        };
        for (column, value) in dimension.columns.iter().zip(row) {
            self.slots[VARIANTS + column] = Operand::from(value);
        }
    }

    fn derive(&mut self) -> Result<(), (Part, EvalError)> {
        let case = self.case;
        for (index, derived) in case.derived.iter().enumerate() {
            let value = derived.expression.evaluate(&self.slots);
            let value = value.map_err(|error| (Part::Derived(index), error))?;
            self.slots[VARIANTS + case.variables.len() + index] = value;
        }
        Ok(())
    }

    /// Applies the rules.
    fn judge(&self) -> Verdict {
        for (index, rule) in self.case.exclude.iter().enumerate() {
            match rule.when.holds(&self.slots) {
                Ok(true) => return Verdict::Excluded(index),
                Ok(false) => {}
                Err(error) => return Verdict::Failed(Part::Exclude(index), error),
            }
        }
        Verdict::Kept
    }

    fn find_extras(&mut self) {
        let case = self.case;
        for include in &case.include {
            for backend in &include.backends {
                for phase in &include.phases {
                    self.variant(*backend, *phase);
                    if let Some(code) = self.extra_code(&include.rows) {
                        self.extras.push((code, *backend, *phase));
                    }
                }
            }
        }
        self.extras.sort_unstable();
        self.extras.dedup();
        self.met = vec![false; self.extras.len()];
    }

    fn extra_code(&mut self, rows: &[usize]) -> Option<u64> {
        for (index, row) in rows.iter().enumerate() {
            self.place(index, *row);
        }
        let case = self.case;
        let mut code = 0;
        for (index, dimension) in case.dimensions.iter().enumerate() {
            let digit = self.existing(index, dimension, rows[index]).ok()?;
            self.place(index, digit);
            code += digit as u64 * self.layout.stride(index);
        }
        Some(code)
    }
}
