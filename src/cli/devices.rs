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
use sweeper_engine::device::platform::{self, Finding, PLATFORMS};
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
    let mut findings: Vec<Finding> = Vec::new();
    for gpus in platform::gpus() {
        let subject = gpus.kind.name();
        match (gpus.discover)() {
            Ok(found) => {
                let each = found.iter().map(|gpu| (gpus.describe)(gpu, 0));
                findings.extend(each.map(|text| (subject, Ok(text))));
                findings.push(compiler_finding(toolchain, gpus.language));
                findings.extend((gpus.libraries)());
            }
            Err(reason) => findings.push((subject, Ok(format!("none: {reason}")))),
        }
    }
    findings
}

/// What there is of a language's compiler.
fn compiler_finding(toolchain: &Toolchain, language: Language) -> Finding {
    let found = toolchain.compiler(language).map(Compiler::summary);
    (facts(language).subject, found.map_err(str::to_owned))
}

/// Shows the devices and tools that work here.
pub fn doctor(args: &DoctorArgs, screen: &Screen) -> Exit {
    if args.aa.aa {
        return aa::aa(&args.aa, screen);
    }
    let findings = findings();
    let mut all = Vec::new();
    for (subject, found) in &findings {
        let (mark, text) = match found {
            Ok(text) => (screen.paint("32", "ok  "), text),
            Err(text) => (screen.paint("33;1", "look"), text),
        };
        match screen.json {
            true => all.push(json!({ "subject": subject, "fine": found.is_ok(), "text": text })),
            false => screen.line(&format!("{mark} {subject:10} {text}")),
        }
    }
    if screen.json {
        screen.json(&all);
    }
    match findings.iter().all(|(_, found)| found.is_ok()) {
        true => Exit::Fine,
        false => Exit::Failures,
    }
}

fn findings() -> Vec<Finding> {
    let (processors, source) = place::processors();
    let (dir, why) = place::cache_dir(None);
    let toolchain = place::toolchain(dir.exists().then_some(dir.as_path()));
    let config = sweeper_cache::CacheConfig::new(&dir, (DEFAULT_CACHE_GB * GB) as u64);
    let cache = match sweeper_cache::Cache::open(config) {
        Ok(cache) => match cache.warning() {
            None => Ok(format!("{} ({why})", dir.display())),
            Some(warning) => Err(warning.to_string()),
        },
        Err(error) => Err(error.to_string()),
    };
    let results = match sweeper_cache::is_network(&PathBuf::from("results")) {
        true => "on a network file system; the journal is synced every 200 ms",
        false => "on a local file system",
    };
    let available = quantity::bytes(sweeper_engine::device::memory::available_bytes());
    let resolution = identity::clock_resolution_ns();
    let fine_if = |is_fine, text| if is_fine { Ok(text) } else { Err(text) };
    let clock = format!("resolution {}", quantity::time_ns(resolution));
    let grants = Grants::of_this_machine();
    let mut findings = vec![
        ("processor", Ok(identity::host().name)),
        ("threads", Ok(format!("{processors} ({source})"))),
        ("memory", Ok(format!("{available} available"))),
        ("clock", fine_if(resolution < 1000.0, clock)),
        compiler_finding(&toolchain, Language::C),
        ("cache", cache),
        ("results", Ok(results.to_owned())),
        ("sandbox", fine_if(grants.is_whole(), grants.describe())),
    ];
    findings.extend(gpu_findings(&toolchain));
    findings
}
