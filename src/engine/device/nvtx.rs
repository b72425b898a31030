//! Names for a profiler's time line: the point that is worked on, and the phase of the work.
//!
//! Only where a profiler is attached, which says so by a variable, and NVIDIA's library is there.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::PathBuf;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use sweeper_model::library_folders;

/// Set by NVIDIA's profilers for processes that they start.
const ATTACHED: &str = "NVTX_INJECTION64_PATH";

/// Names of the library, of newer toolkits and of older ones.
const NAMES: [&str; 3] = [
    "libnvtx3interop.so.1",
    "libnvtx3interop.so",
    "libnvToolsExt.so.1",
];

/// Ranges of this thread's time.
pub struct Ranges {
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    pop: unsafe extern "C" fn() -> c_int,
    is_open: bool,
    /// Stays loaded for as long as the functions are used.
    _library: Library,
}

impl Ranges {
    /// Ranges, where a profiler wants them.
    pub fn find() -> Option<Self> {
        std::env::var_os(ATTACHED)?;
        let folders = library_folders::folders();
        let in_folders = folders
            .iter()
            .flat_map(|folder| NAMES.map(|name| folder.join(name)));
        let everywhere = NAMES.map(PathBuf::from).into_iter();
        let mut found = in_folders.filter(|path| path.is_file()).chain(everywhere);
        found.find_map(Ranges::of)
    }

    #[expect(unsafe_code, reason = "loading a library runs its initialisers")]
    fn of(path: PathBuf) -> Option<Self> {
        // SAFETY: it is NVIDIA's library, by its name.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.ok()?;
        Some(Ranges {
            push: function(&library, c"nvtxRangePushA")?,
            pop: function(&library, c"nvtxRangePop")?,
            is_open: false,
            _library: library,
        })
    }

    /// Ends the range before, and begins one called `name`.
    #[expect(unsafe_code, reason = "a call of a foreign function")]
    pub fn begin(&mut self, name: &str) {
        self.end();
        if let Ok(name) = CString::new(name) {
            // SAFETY: the name ends with a zero; the library copies it.
            unsafe { (self.push)(name.as_ptr()) };
            self.is_open = true;
        }
    }

    /// Ends the range, if there is one.
    #[expect(unsafe_code, reason = "a call of a foreign function")]
    pub fn end(&mut self) {
        if std::mem::take(&mut self.is_open) {
            // SAFETY: a range was begun on this thread.
            unsafe { (self.pop)() };
        }
    }
}

/// A function by its name.
#[expect(
    unsafe_code,
    reason = "the type of a foreign function can't be checked"
)]
fn function<F: Copy>(library: &Library, name: &CStr) -> Option<F> {
    // SAFETY: the types of `Ranges`' fields are those of NVTX's header, where the names are unique.
    let symbol = unsafe { library.get::<F>(name.to_bytes_with_nul()) };
    symbol.ok().map(|symbol| *symbol)
}
