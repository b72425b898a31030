//! Whether a compiler's output is whole: a file that was cut off kills the process that loads it.

use elf::ElfBytes;
use elf::endian::AnyEndian;

/// Refuses a file that is not an ELF file, or whose segments or sections lie outside of it.
///
/// # Errors
/// The end of a sentence about the file.
pub fn check(bytes: &[u8]) -> Result<(), &'static str> {
    let file = ElfBytes::<AnyEndian>::minimal_parse(bytes).map_err(|_| "is no ELF file")?;
    let segments = file.segments().into_iter().flat_map(|table| table.iter());
    for segment in segments {
        file.segment_data(&segment).map_err(|_| "is cut off")?;
    }
    let sections = file.section_headers();
    let sections = sections.into_iter().flat_map(|table| table.iter());
    for section in sections {
        file.section_data(&section).map_err(|_| "is cut off")?;
    }
    Ok(())
}
