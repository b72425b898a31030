//! NVRTC's functions: CUDA C++ to cubin, without a GPU.
//!
//! The library is loaded by the path that it was found at, not by a name that the loader would
//! search for: its digest is part of kernels' keys. Lives here because calls of foreign functions
//! do.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// NVRTC's result of a call without an error.
const SUCCESS: c_int = 0;
/// NVRTC's result where the source or the options are at fault, as is the next one.
const INVALID_OPTION: c_int = 5;
const COMPILATION: c_int = 6;
/// The same for names that the source does not have.
const NAME_EXPRESSION: c_int = 10;

type Program = *mut c_void;

/// NVRTC, ready to compile, from any thread.
pub struct Compiler {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    log_size: SizeFunction,
    log: BytesFunction,
    cubin_size: SizeFunction,
    cubin: BytesFunction,
    add_name: unsafe extern "C" fn(Program, *const c_char) -> c_int,
    lowered_name: unsafe extern "C" fn(Program, *const c_char, *mut *const c_char) -> c_int,
    /// Older versions lack these two.
    count_architectures: Option<NumbersFunction>,
    architectures: Option<NumbersFunction>,
    /// Stays loaded for as long as the functions are used.
    _library: Library,
    /// Loaded ahead, so that NVRTC finds it by its name.
    _builtins: Library,
}

type SizeFunction = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type NumbersFunction = unsafe extern "C" fn(*mut c_int) -> c_int;
type BytesFunction = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

/// A file of source by name.
pub struct Text {
    /// The name by which others include it.
    pub name: CString,
    /// The text.
    pub text: CString,
}

/// The result of a compilation.
pub struct Compilation {
    /// The cubin.
    pub cubin: Vec<u8>,
    /// The symbol of each name expression.
    pub symbols: BTreeMap<String, String>,
    /// The log of NVRTC and its assembler.
    pub log: String,
}

/// Why there is no cubin.
pub enum Refusal {
    /// The source or the options are at fault.
    Source {
        /// The log of NVRTC.
        log: String,
    },
    /// NVRTC itself failed.
    Compiler(String),
}

impl Compiler {
    /// Loads NVRTC from `path`, and the builtins that belong to it from its folder; their path is
    /// returned, too.
    ///
    /// # Errors
    /// The library that can't be loaded.
    pub fn load(path: &Path) -> Result<(Self, PathBuf), String> {
        let library = open(path)?;
        let version = function(&library, c"nvrtcVersion")?;
        let (major, minor) = ask_version(version)?;
        let name = format!("libnvrtc-builtins.so.{major}.{minor}");
        let builtins = path.with_file_name(&name);
        if !builtins.is_file() {
            return Err(format!(
                "{} can't compile: {name} is not beside it; install both from one package",
                path.display()
            ));
        }
        let compiler = Compiler {
            version,
            create: function(&library, c"nvrtcCreateProgram")?,
            destroy: function(&library, c"nvrtcDestroyProgram")?,
            compile: function(&library, c"nvrtcCompileProgram")?,
            log_size: function(&library, c"nvrtcGetProgramLogSize")?,
            log: function(&library, c"nvrtcGetProgramLog")?,
            cubin_size: function(&library, c"nvrtcGetCUBINSize")?,
            cubin: function(&library, c"nvrtcGetCUBIN")?,
            add_name: function(&library, c"nvrtcAddNameExpression")?,
            lowered_name: function(&library, c"nvrtcGetLoweredName")?,
            count_architectures: function(&library, c"nvrtcGetNumSupportedArchs").ok(),
            architectures: function(&library, c"nvrtcGetSupportedArchs").ok(),
            _builtins: open(&builtins)?,
            _library: library,
        };
        Ok((compiler, builtins))
    }

    /// NVRTC's version: major, minor.
    ///
    /// # Errors
    /// NVRTC's.
    pub fn version(&self) -> Result<(i32, i32), String> {
        ask_version(self.version)
    }

    /// The architectures that it compiles for, as numbers such as 90; none if it does not say.
    #[expect(unsafe_code, reason = "calls of foreign functions")]
    pub fn architectures(&self) -> Vec<i32> {
        let (Some(count), Some(get)) = (self.count_architectures, self.architectures) else {
            return Vec::new();
        };
        let mut len = 0;
        // SAFETY: the pointer is to a number of the right type.
        if unsafe { count(&raw mut len) } != SUCCESS {
            return Vec::new();
        }
        let mut numbers = vec![0; usize::try_from(len).unwrap_or(0)];
        // SAFETY: there is room for as many numbers as it counted.
        match unsafe { get(numbers.as_mut_ptr()) } {
            SUCCESS => numbers,
            _ => Vec::new(),
        }
    }

    /// Compiles the first of `files`, which may include the others, with what the name expressions
    /// in `names` ask for.
    ///
    /// # Errors
    /// A [`Refusal`].
    #[expect(unsafe_code, reason = "calls of foreign functions")]
    pub fn compile(
        &self,
        files: &[Text],
        options: &[CString],
        names: &[CString],
    ) -> Result<Compilation, Refusal> {
        let failed = |what: &str, code| Refusal::Compiler(format!("NVRTC: {what}: error {code}"));
        let Some((main, headers)) = files.split_first() else {
            return Err(Refusal::Compiler("a kernel without source".to_owned()));
        };
        let pointers = |texts: &mut dyn Iterator<Item = &CString>| -> Vec<*const c_char> {
            texts.map(|text| text.as_ptr()).collect()
        };
        let texts = pointers(&mut headers.iter().map(|file| &file.text));
        let headers_names = pointers(&mut headers.iter().map(|file| &file.name));
        let options = pointers(&mut options.iter());
        let mut unit = Unit {
            program: ptr::null_mut(),
            compiler: self,
        };
        // SAFETY: all texts end with a zero and outlive the call; lists are as long as told.
        let created = unsafe {
            (self.create)(
                &raw mut unit.program,
                main.text.as_ptr(),
                main.name.as_ptr(),
                headers.len() as c_int,
                texts.as_ptr(),
                headers_names.as_ptr(),
            )
        };
        if created != SUCCESS {
            return Err(failed("a program", created));
        }
        for name in names {
            // SAFETY: the program was created and not compiled yet; the name ends with a zero.
            match unsafe { (self.add_name)(unit.program, name.as_ptr()) } {
                SUCCESS => {}
                code => return Err(failed(&format!("the name {name:?}"), code)),
            }
        }
        // SAFETY: the program was created; the rest as above.
        let compiled =
            unsafe { (self.compile)(unit.program, options.len() as c_int, options.as_ptr()) };
        let bytes = |size, get, what| unit.bytes(size, get).map_err(|code| failed(what, code));
        let log = text(&bytes(self.log_size, self.log, "its log")?);
        match compiled {
            SUCCESS => Ok(Compilation {
                cubin: bytes(self.cubin_size, self.cubin, "a cubin")?,
                symbols: unit
                    .symbols(names)
                    .map_err(|code| failed("a symbol", code))?,
                log,
            }),
            INVALID_OPTION | COMPILATION | NAME_EXPRESSION => Err(Refusal::Source { log }),
            other => Err(failed(&format!("compiling: {log}"), other)),
        }
    }
}

/// A program of NVRTC's, destroyed when it is dropped.
struct Unit<'a> {
    program: Program,
    compiler: &'a Compiler,
}

impl Unit<'_> {
    /// Bytes whose number NVRTC tells first.
    #[expect(unsafe_code, reason = "calls of foreign functions")]
    fn bytes(&self, size: SizeFunction, get: BytesFunction) -> Result<Vec<u8>, c_int> {
        let mut len = 0;
        // SAFETY: the program lives, and the pointer is to a number of the right type.
        let answer = unsafe { size(self.program, &raw mut len) };
        if answer != SUCCESS {
            return Err(answer);
        }
        let mut bytes = vec![0u8; len];
        // SAFETY: the program lives, and there is as much room as it asked for.
        match unsafe { get(self.program, bytes.as_mut_ptr().cast()) } {
            SUCCESS => Ok(bytes),
            refused => Err(refused),
        }
    }
}

impl Unit<'_> {
    /// The symbols that name expressions became in a program that was compiled.
    #[expect(unsafe_code, reason = "calls of foreign functions")]
    fn symbols(&self, names: &[CString]) -> Result<BTreeMap<String, String>, c_int> {
        let symbol = |name: &CString| {
            let mut lowered = ptr::null();
            // SAFETY: the program was compiled with this name, which ends with a zero.
            let answer = unsafe {
                (self.compiler.lowered_name)(self.program, name.as_ptr(), &raw mut lowered)
            };
            if answer != SUCCESS || lowered.is_null() {
                return Err(answer);
            }
            // SAFETY: NVRTC's text ends with a zero, and lives as long as the program.
            let lowered = unsafe { CStr::from_ptr(lowered) };
            let text = |text: &CStr| text.to_string_lossy().into_owned();
            Ok((text(name), text(lowered)))
        };
        names.iter().map(symbol).collect()
    }
}

impl Drop for Unit<'_> {
    #[expect(unsafe_code, reason = "a call of a foreign function")]
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: destroyed once.
            unsafe { (self.compiler.destroy)(&raw mut self.program) };
        }
    }
}

/// A log without the zero at its end.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

#[expect(unsafe_code, reason = "loading a library runs its initialisers")]
fn open(path: &Path) -> Result<Library, String> {
    // SAFETY: it is NVIDIA's library, by its name and from a folder that the user or the system
    // named.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// A function by its name.
#[expect(
    unsafe_code,
    reason = "the type of a foreign function can't be checked"
)]
fn function<F: Copy>(library: &Library, name: &std::ffi::CStr) -> Result<F, String> {
    // SAFETY: the types of `Compiler`'s fields are those of NVRTC's header, where the names are
    // unique.
    let symbol = unsafe { library.get::<F>(name.to_bytes_with_nul()) };
    symbol
        .map(|symbol| *symbol)
        .map_err(|error| error.to_string())
}

#[expect(unsafe_code, reason = "a call of a foreign function")]
fn ask_version(
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
) -> Result<(i32, i32), String> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are to numbers of the right type.
    match unsafe { version(&raw mut major, &raw mut minor) } {
        SUCCESS => Ok((major, minor)),
        code => Err(format!("NVRTC does not tell its version: error {code}")),
    }
}
