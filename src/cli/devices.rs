//! `sweeper devices` and `sweeper doctor`: the devices and tools that work here, and the packages
//! to install for those that do not.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::exit::Exit;
use super::screen::Screen;
use super::{aa, place, worker};
use crate::run::{calibration::Calibrator, ceilings_file::CeilingsFile};
use sweeper_engine::compile::kernels::Kernels;
use sweeper_engine::compile::toolchain::{Compiler, Toolchain, facts};
use sweeper_engine::device::cpu::identity;
use sweeper_engine::device::platform::{self, PLATFORMS};
use sweeper_engine::device::sandbox::Grants;
use sweeper_engine::execute::protocol::DeviceRequest;
use sweeper_engine::execute::supervisor::Supervisor;
use sweeper_manifest::settings::{DEFAULT_CACHE_GB, GB};
use sweeper_model::hardware::DeviceIdentity;
use sweeper_model::hardware::ceilings::{COPY, CeilingSource, Ceilings};
use sweeper_model::identity::CacheState;
use sweeper_model::quantity;
use sweeper_program::Language;

/// Arguments of `devices`.
#[derive(Args)]
pub struct DevicesArgs {
    /// Measure what devices can do at most, again if that was done
    #[arg(long)]
    calibrate: bool,
}

/// Arguments of `doctor`.
#[derive(Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    aa: aa::AaArgs,
}

/// Lists devices.
pub fn devices(args: &DevicesArgs, screen: &Screen) -> Exit {
    if args.calibrate {
        return calibrate(screen);
    }
    let (dir, _) = place::cache_dir(None);
    if screen.json {
        let all = computing().map(|(_, device)| with_ceilings(&device, &dir));
        screen.json(&all.collect::<Vec<_>>());
        return Exit::Fine;
    }
    for platform in PLATFORMS {
        let facts = platform.kind.facts();
        match (platform.discover)() {
            Ok(found) => {
                for (ordinal, device) in found.iter().enumerate() {
                    let name = match facts.is_gpu {
                        true => format!("{}:{ordinal}", facts.name),
                        false => facts.name.to_owned(),
                    };
                    let text = (platform.describe)(device, place::processors().0);
                    screen.line(&format!("{name:6} {text}"));
                    show_remembered(device, &dir, screen);
                }
            }
            Err(reason) => screen.line(&format!("{:6} none: {reason}", facts.name)),
        }
    }
    Exit::Fine
}

/// The devices of this machine that compute, each with its number among those of its kind.
fn computing() -> impl Iterator<Item = (u32, DeviceIdentity)> {
    let platforms = PLATFORMS.iter().filter(|it| it.kind.facts().computes);
    platforms.flat_map(|platform| (0..).zip((platform.discover)().unwrap_or_default()))
}

/// A device as JSON, with its remembered ceilings.
fn with_ceilings(device: &DeviceIdentity, folder: &Path) -> serde_json::Value {
    let held = CeilingsFile::all_of(folder, device);
    let ceilings: Vec<_> = held
        .iter()
        .map(|held| json!({ "threads": held.threads, "ceilings": held.ceilings() }))
        .collect();
    let mut value = json!(device);
    value["ceilings"] = json!(ceilings);
    value
}

/// Shows the remembered ceilings of a device: each rate, who measured it and when.
fn show_remembered(device: &DeviceIdentity, folder: &Path, screen: &Screen) {
    for held in CeilingsFile::all_of(folder, device) {
        let ceilings = held.ceilings();
        let source = |kind: &str| match ceilings.sources.get(kind) {
            Some(CeilingSource {
                run: Some(run),
                unix_s,
            }) => {
                format!("calibration {run}, {}", quantity::date(*unix_s))
            }
            Some(CeilingSource { unix_s, .. }) if *unix_s > 0.0 => {
                format!("probe, {}", quantity::date(*unix_s))
            }
            _ => "probe".to_owned(),
        };
        let mut rates = vec![format!(
            "copies {}B/s ({})",
            quantity::scaled(ceilings.copy_bytes_per_s),
            source(COPY)
        )];
        rates.extend(ceilings.flops_per_s.iter().map(|(kind, rate)| {
            format!(
                "{kind} {}flop/s ({})",
                quantity::scaled(*rate),
                source(kind)
            )
        }));
        let threads = match (device.kind.facts().is_gpu, held.threads) {
            (true, _) => String::new(),
            (false, 1) => "1 thread: ".to_owned(),
            (false, count) => format!("{count} threads: "),
        };
        screen.line(&format!("       {threads}{}", rates.join(", ")));
    }
}

/// Measures the ceilings of the CPU and of every GPU, and shows them.
fn calibrate(screen: &Screen) -> Exit {
    let (dir, _) = place::cache_dir(None);
    let config = sweeper_cache::CacheConfig::new(&dir, (DEFAULT_CACHE_GB * GB) as u64);
    let cache = sweeper_cache::Cache::open(config).ok();
    let toolchain = place::toolchain(Some(&dir));
    let worker = match worker::command() {
        Ok(worker) => worker,
        Err(error) => {
            screen.error(&format!("this program's own file: {error}"));
            return Exit::Files;
        }
    };
    let request = |kind, ordinal| DeviceRequest {
        kind,
        ordinal,
        threads: 1,
        spare: Vec::new(),
        cache: CacheState::Hot,
        silence_limit: POINT_LIMIT,
        answers: None,
        compiled_code: None,
        declared: Vec::new(),
    };
    let mut exit = Exit::Fine;
    for (ordinal, device) in computing() {
        let request = request(device.kind, ordinal);
        let calibrator = Calibrator {
            kernels: Kernels {
                toolchain: &toolchain,
                cache: cache.as_ref(),
                device: &device,
                limit: KERNEL_LIMIT,
                require_cached: false,
                stop: &sweeper_engine::compile::NEVER,
            },
            target: (platform::platform(device.kind).target)(&device),
            threads: request.threads,
            folder: cache.as_ref().map(|_| dir.as_path()),
            again: true,
            compile_threads: place::processors().0,
        };
        let measured = Supervisor::start(worker.clone(), request, POINT_LIMIT)
            .map_err(|error| error.to_string())
            .and_then(|mut supervisor| calibrator.ceilings(&mut supervisor));
        match measured {
            Ok(ceilings) if screen.json => screen.json(&json!({
                "device": device, "ceilings": ceilings,
            })),
            Ok(ceilings) => screen.line(&describe_ceilings(&device, &ceilings)),
            Err(reason) => {
                screen.error(&format!("{} {}: {reason}", device.name, device.unit));
                exit = Exit::Failures;
            }
        }
    }
    exit
}

/// How long a probe's kernel may take to compile, and a worker may be silent.
const KERNEL_LIMIT: Duration = Duration::from_secs(60);
const POINT_LIMIT: Duration = Duration::from_secs(60);

fn describe_ceilings(device: &DeviceIdentity, ceilings: &Ceilings) -> String {
    let rates = ceilings.flops_per_s.iter();
    let rates = rates.map(|(kind, rate)| format!(", {:.1} Tflop/s {kind}", rate / 1e12));
    format!(
        "{:6} {} {}: copies {:.1} GB/s{}",
        device.kind.name(),
        device.name,
        device.unit,
        ceilings.copy_bytes_per_s / 1e9,
        rates.collect::<String>()
    )
}

/// Findings about GPUs, their compilers and their libraries. A machine without a GPU lacks nothing.
fn gpu_findings(toolchain: &Toolchain) -> Vec<Finding> {
    let mut findings = Vec::new();
    for gpus in platform::gpus() {
        let subject = gpus.kind.name();
        let found = match (gpus.discover)() {
            Ok(found) => found,
            Err(reason) => {
                findings.push(Finding::new(subject, Ok(format!("none: {reason}"))));
                continue;
            }
        };
        let each = found.iter().map(|gpu| (gpus.describe)(gpu, 0));
        findings.extend(each.map(|text| Finding::new(subject, Ok(text))));
        findings.push(compiler_finding(toolchain, gpus.language));
        let libraries = (gpus.libraries)().into_iter();
        findings.extend(libraries.map(|(word, found)| Finding::new(word, found)));
    }
    findings
}

/// What there is of a language's compiler.
fn compiler_finding(toolchain: &Toolchain, language: Language) -> Finding {
    let found = toolchain.compiler(language).map(Compiler::summary);
    Finding::new(facts(language).subject, found.map_err(str::to_owned))
}

/// One line of the doctor's report.
struct Finding {
    subject: &'static str,
    fine: bool,
    text: String,
}

impl Finding {
    /// A text, or what is wrong.
    fn new(subject: &'static str, found: Result<String, String>) -> Self {
        let fine = found.is_ok();
        let text = found.unwrap_or_else(|reason| reason);
        Finding {
            subject,
            fine,
            text,
        }
    }
}

/// Shows the devices and tools that work here.
pub fn doctor(args: &DoctorArgs, screen: &Screen) -> Exit {
    if args.aa.aa {
        return aa::aa(&args.aa, screen);
    }
    let findings = findings();
    if screen.json {
        let all: Vec<_> = findings
            .iter()
            .map(|finding| json!({ "subject": finding.subject, "fine": finding.fine, "text": finding.text }))
            .collect();
        screen.json(&all);
    } else {
        for finding in &findings {
            let mark = if finding.fine {
                screen.paint("32", "ok  ")
            } else {
                screen.paint("33;1", "look")
            };
            screen.line(&format!("{mark} {:10} {}", finding.subject, finding.text));
        }
    }
    if findings.iter().all(|finding| finding.fine) {
        Exit::Fine
    } else {
        Exit::Failures
    }
}

fn findings() -> Vec<Finding> {
    let finding = |subject, fine, text| Finding {
        subject,
        fine,
        text,
    };
    let (processors, source) = place::processors();
    let (dir, why) = place::cache_dir(None);
    let toolchain = place::toolchain(dir.exists().then_some(dir.as_path()));
    let compiler = compiler_finding(&toolchain, Language::C);
    let config = sweeper_cache::CacheConfig::new(&dir, (DEFAULT_CACHE_GB * GB) as u64);
    let cache = match sweeper_cache::Cache::open(config) {
        Ok(cache) => match cache.warning() {
            None => finding("cache", true, format!("{} ({why})", dir.display())),
            Some(warning) => finding("cache", false, warning.to_string()),
        },
        Err(error) => finding("cache", false, error.to_string()),
    };
    let results = PathBuf::from("results");
    let network = sweeper_cache::is_network(&results);
    let resolution = identity::clock_resolution_ns();
    let mut findings = vec![
        finding("processor", true, identity::host().name),
        finding("threads", true, format!("{processors} ({source})")),
        finding(
            "memory",
            true,
            format!(
                "{} available",
                quantity::bytes(sweeper_engine::device::memory::available_bytes())
            ),
        ),
        finding(
            "clock",
            resolution < 1000.0,
            format!("resolution {}", quantity::time_ns(resolution)),
        ),
        compiler,
        cache,
        finding(
            "results",
            true,
            if network {
                "on a network file system; the journal is synced every 200 ms"
            } else {
                "on a local file system"
            }
            .to_owned(),
        ),
    ];
    let grants = Grants::of_this_machine();
    findings.push(finding("sandbox", grants.is_whole(), grants.describe()));
    findings.extend(gpu_findings(&toolchain));
    findings
}
