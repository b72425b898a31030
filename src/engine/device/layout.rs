//! Where the buffers of a program lie in memory that all programs share, and the bands around those
//! of a program with kernels of the user: a write of such a kernel beside a buffer shows there.

use std::fmt;
use std::ops::Range;

use sweeper_program::{Binding, Program};

/// Bytes of a band; padding behind a buffer is part of the one after it. It is a page, so that
/// buffers lie where they would in their pages without bands: on a CPU, how fast a kernel loads
/// depends on where it stores in a page. A block of 1024 threads that goes on past the end of a
/// tensor in f32 stays within it.
const BAND_BYTES: usize = 4096;

/// What bands hold: NaN in each real type, so that reading it shows in results, and other than
/// poison, which is -1 in whole numbers.
const PATTERN: [u8; 2] = [0xfa, 0xff];

/// Where the buffers of a program lie.
pub struct Layout {
    /// Offset of each buffer in bytes; `None` for given ones and variables of kernels, which lie
    /// elsewhere.
    pub offsets: Vec<Option<usize>>,
    /// Bytes in all.
    pub bytes: usize,
    /// Bands before and after each buffer that has an offset; none where all kernels are of this
    /// build.
    pub bands: Vec<Band>,
}

/// A side of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

/// A stretch of memory beside a buffer that nothing is to be written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Band {
    /// Position of the buffer in its program.
    buffer: usize,
    side: Side,
    /// Where it lies, in bytes.
    pub range: Range<usize>,
}

/// What was written beside a buffer, in words: `4 bytes past the end of `y``.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    buffer: String,
    side: Side,
    /// How far from the buffer the last damaged byte lies, in bytes.
    reach: usize,
    /// All of the band is damaged to its far end, so that more may be.
    is_at_least: bool,
}

impl Layout {
    /// Buffers one behind the other, each at a multiple of `alignment` bytes, a power of two of at
    /// most a page.
    pub fn of(program: &Program, alignment: usize) -> Self {
        let band_bytes = match program.has_kernels_of_the_user() {
            true => BAND_BYTES,
            false => 0,
        };
        let mut layout = Layout {
            offsets: Vec::with_capacity(program.buffers.len()),
            bytes: 0,
            bands: Vec::new(),
        };
        for (number, buffer) in program.buffers.iter().enumerate() {
            let bytes = buffer.size_bytes() as usize;
            let offset = match buffer.binding {
                Binding::Given | Binding::Updated { .. } | Binding::Symbol { .. } => None,
                Binding::Result | Binding::Scratch => {
                    Some(layout.place(number, bytes, alignment, band_bytes))
                }
            };
            layout.offsets.push(offset);
        }
        layout
    }

    /// Adds a buffer, by its number; its offset.
    fn place(&mut self, buffer: usize, bytes: usize, alignment: usize, band_bytes: usize) -> usize {
        let first = self.bytes + band_bytes;
        let end = first + bytes;
        let next = first + bytes.next_multiple_of(alignment) + band_bytes;
        if band_bytes > 0 {
            let sides = [(Side::Before, self.bytes..first), (Side::After, end..next)];
            let band = |(side, range)| Band {
                buffer,
                side,
                range,
            };
            self.bands.extend(sides.map(band));
        }
        self.bytes = next;
        first
    }

    /// Bytes of the buffers with what their alignment costs, without those of bands.
    pub fn bytes_of_buffers(&self) -> usize {
        self.bytes - BAND_BYTES * self.bands.len()
    }
}

impl Band {
    /// What it holds as long as nothing was written to it.
    pub fn pattern(&self) -> Vec<u8> {
        self.range.clone().map(pattern_at).collect()
    }

    /// What a program wrote to it, if it did, by the bytes that it holds now.
    pub fn damage(&self, found: &[u8], program: &Program) -> Option<Damage> {
        let is_damaged = |&at: &usize| found[at] != pattern_at(self.range.start + at);
        let mut places = 0..found.len();
        let reach = match self.side {
            Side::Before => found.len() - places.find(is_damaged)?,
            Side::After => places.rfind(is_damaged)? + 1,
        };
        let buffer = &program.buffers[self.buffer];
        // The outermost bytes of an element may be those of the pattern by chance.
        let reach = reach.next_multiple_of(buffer.dtype.size_bytes());
        Some(Damage {
            buffer: buffer.name.to_string(),
            side: self.side,
            reach: reach.min(found.len()),
            is_at_least: reach >= found.len(),
        })
    }
}

/// The byte of the pattern at an offset.
fn pattern_at(offset: usize) -> u8 {
    PATTERN[offset % PATTERN.len()]
}

impl fmt::Display for Damage {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = match self.reach {
            1 => "1 byte".to_owned(),
            bytes => format!("{bytes} bytes"),
        };
        let more = if self.is_at_least { " or more" } else { "" };
        let side = match self.side {
            Side::Before => "before the beginning",
            Side::After => "past the end",
        };
        write!(to, "{bytes}{more} {side} of `{}`", self.buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    use sweeper_program::{Dtype, Kernel, KernelSource, Language, Role, UserOptions};

    /// Three buffers, the second of them given, of a kernel of this build or of the user.
    fn program(user: Option<Box<UserOptions>>) -> Program {
        let mut program = Program::default();
        for (name, dtype, len, binding) in [
            ("y", Dtype::F32, 3, Binding::Result),
            ("x", Dtype::F32, 3, Binding::Given),
            ("partial", Dtype::F64, 100, Binding::Scratch),
        ] {
            program.buffer(name, dtype, len, Role::Workspace, binding);
        }
        program.kernel(Kernel::Compiled(KernelSource {
            language: Language::C,
            files: Cow::Borrowed(&[]),
            entry: "f".into(),
            defines: Vec::new(),
            options: Vec::new(),
            user,
        }));
        program
    }

    fn users() -> Program {
        program(Some(Box::default()))
    }

    #[test]
    fn buffers_of_users_lie_in_bands_and_others_where_they_did() {
        let own = Layout::of(&program(None), 256);
        assert_eq!(own.offsets, [Some(0), None, Some(256)]);
        assert_eq!((own.bytes, own.bands.len()), (256 + 1024, 0));
        let layout = Layout::of(&users(), 256);
        assert_eq!(layout.offsets, [Some(4096), None, Some(3 * 4096 + 256)]);
        assert_eq!(layout.bytes_of_buffers(), own.bytes);
        let bands: Vec<Range<usize>> = layout.bands.into_iter().map(|band| band.range).collect();
        let between = 2 * 4096 + 256;
        let last = between + 4096;
        let expected = [
            0..4096,
            4096 + 12..between,
            between..last,
            last + 800..layout.bytes,
        ];
        assert_eq!(bands, expected);
    }

    #[test]
    fn damage_is_told_by_its_side_and_its_reach() {
        let program = users();
        let layout = Layout::of(&program, 64);
        let told = |band: &Band, places: &[usize]| {
            let mut found = band.pattern();
            places.iter().for_each(|&at| found[at] = 7);
            band.damage(&found, &program)
                .map(|damage| damage.to_string())
        };
        let [before, after, _, of_doubles] = layout.bands.as_slice() else {
            panic!("{:?}", layout.bands);
        };
        assert_eq!(told(before, &[]), None);
        let said = |words: &str| Some(words.to_owned());
        let one = said("4 bytes before the beginning of `y`");
        assert_eq!(told(before, &[4093]), one);
        let far = said("4096 bytes or more before the beginning of `y`");
        assert_eq!(told(before, &[2, 4095]), far);
        assert_eq!(told(after, &[1]), said("4 bytes past the end of `y`"));
        // The padding behind it is part of the band.
        let far = said("4148 bytes or more past the end of `y`");
        assert_eq!(told(after, &[0, 4147]), far);
        let double = said("16 bytes past the end of `partial`");
        assert_eq!(told(of_doubles, &[9]), double);
    }

    #[test]
    fn reading_a_band_shows_in_results_of_every_real_type() {
        let all: [u8; 8] = std::array::from_fn(pattern_at);
        assert!(f64::from_le_bytes(all).is_nan());
        assert!(f32::from_le_bytes([all[0], all[1], all[2], all[3]]).is_nan());
        assert!(half::f16::from_le_bytes([all[0], all[1]]).is_nan());
        assert!(half::bf16::from_le_bytes([all[0], all[1]]).is_nan());
    }
}
