//! A headless Chromium that tests look through: the DevTools protocol over its standard streams.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::skip;

/// No answer of the browser takes longer on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page.
pub(super) struct Browser {
    child: Child,
    requests: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    next: u64,
    /// Errors that the page wrote to its console, and uncaught exceptions.
    complaints: Vec<String>,
    /// Addresses that were asked for.
    requested: Vec<String>,
    _profile: TempDir,
}

/// Names of keys, and their codes on Windows, which the protocol uses.
const KEYS: [(&str, u32); 9] = [
    ("Tab", 9),
    ("Enter", 13),
    ("Escape", 27),
    (" ", 32),
    ("End", 35),
    ("ArrowLeft", 37),
    ("ArrowUp", 38),
    ("ArrowRight", 39),
    ("ArrowDown", 40),
];

/// The browser's program, if it is installed.
fn find() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("SWEEPER_BROWSER") {
        return Some(PathBuf::from(path));
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&folders)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|path| path.is_file())
}

impl Browser {
    /// Starts a browser with a window of that size, unless there is none here and none is required.
    pub(super) fn start(width: u32, height: u32) -> Option<Self> {
        let Some(program) = find() else {
            skip("browser", "no Chromium here: apt-get install chromium");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        // The protocol's pipes are descriptors 3 and 4; the shell moves our pipes to these numbers.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null", "sh"])
            .arg(program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu"])
            .args([
                "--remote-debugging-pipe",
                "--no-first-run",
                "--hide-scrollbars",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (sender, messages) = channel();
        let stdout = child.stdout.take().unwrap();
        thread::spawn(move || {
            for message in BufReader::new(stdout).split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).unwrap();
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            requests: child.stdin.take().unwrap(),
            child,
            messages,
            session: None,
            next: 0,
            complaints: Vec::new(),
            requested: Vec::new(),
            _profile: profile,
        };
        browser.attach(width, height);
        Some(browser)
    }

    fn attach(&mut self, width: u32, height: u32) {
        let targets = self.call("Target.getTargets", json!({}));
        let targets = targets["targetInfos"].as_array().unwrap();
        let page = targets.iter().find(|target| target["type"] == "page");
        let target = page.unwrap()["targetId"].clone();
        let attached = json!({ "targetId": target, "flatten": true });
        let session = self.call("Target.attachToTarget", attached);
        self.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Runtime", "Log", "Page", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Calls a method of the protocol.
    pub(super) fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut request = json!({ "id": self.next, "method": method, "params": params });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        self.requests
            .write_all(format!("{request}\0").as_bytes())
            .unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut message = match self.messages.recv_timeout(left) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => panic!("{method} was not answered"),
                Err(RecvTimeoutError::Disconnected) => panic!("the browser ended at {method}"),
            };
            if message["id"] == self.next {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
            self.hear(&message);
        }
    }

    fn hear(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => {
                self.complaints.push(params["exceptionDetails"].to_string());
            }
            "Runtime.consoleAPICalled" => self.complaints.push(params["args"].to_string()),
            "Log.entryAdded" => self.complaints.push(params["entry"].to_string()),
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                self.requested.push(url.to_owned());
            }
            _ => {}
        }
    }

    /// The page's complaints so far.
    pub(super) fn complaints(&mut self) -> &[String] {
        // Complaints from before this answer have arrived with it.
        self.evaluate("1");
        &self.complaints
    }

    /// Addresses that were asked for.
    pub(super) fn requested(&self) -> &[String] {
        &self.requested
    }

    /// Opens a page of ours, with a view after `#`, and waits until it is drawn.
    pub(super) fn open(&mut self, path: &Path, view: &str) {
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        self.requested.clear();
        let url = format!("file://{}{view}", path.display());
        self.call("Page.navigate", json!({ "url": url }));
        let drawn = "document.documentElement?.dataset.ready === 'true' \
                     || document.getElementById('trouble')?.hidden === false";
        self.wait(drawn);
    }

    /// Waits until an expression is true.
    pub(super) fn wait(&mut self, expression: &str) {
        let start = Instant::now();
        while self.evaluate(&format!("!!({expression})")) != json!(true) {
            assert!(start.elapsed() < PATIENCE, "never came true: {expression}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The value of an expression in the page; a promise is waited for.
    pub(super) fn evaluate(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut found = self.call("Runtime.evaluate", params);
        let failure = &found["exceptionDetails"];
        assert!(failure.is_null(), "{expression}: {failure}");
        found["result"]["value"].take()
    }

    /// The value of an expression as text.
    pub(super) fn text(&mut self, expression: &str) -> String {
        let found = self.evaluate(&format!("String({expression})"));
        found.as_str().unwrap().to_owned()
    }

    /// Presses and releases a key.
    pub(super) fn press(&mut self, key: &str) {
        let (_, code) = KEYS.iter().find(|(held, _)| *held == key).unwrap();
        let down = match key {
            "Enter" => json!({ "text": "\r" }),
            " " => json!({ "text": " " }),
            _ => json!({}),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut params = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" {
                params
                    .as_object_mut()
                    .unwrap()
                    .extend(down.as_object().unwrap().clone());
            }
            self.call("Input.dispatchKeyEvent", params);
        }
    }

    /// Types text where the focus is.
    pub(super) fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Moves the pointer, or presses or releases its button: `mouseMoved`, `mousePressed`,
    /// `mouseReleased`.
    pub(super) fn mouse(&mut self, kind: &str, [x, y]: [f64; 2]) {
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        let params = json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": 1 });
        self.call("Input.dispatchMouseEvent", params);
    }

    /// Clicks the element that a selector finds.
    pub(super) fn click(&mut self, selector: &str) {
        let place = self.evaluate(&format!(
            "(() => {{ const found = document.querySelector({}); \
             found.scrollIntoView({{ block: 'center', behavior: 'instant' }}); \
             const box = found.getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()",
            json!(selector)
        ));
        let place = [0, 1].map(|axis| place[axis].as_f64().unwrap());
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            self.mouse(kind, place);
        }
    }

    /// Writes a picture of the page where `SWEEPER_PICTURES` names a folder: for people to look at.
    pub(super) fn picture(&mut self, name: &str) {
        if let Some(folder) = std::env::var_os("SWEEPER_PICTURES") {
            let params = json!({ "format": "png", "captureBeyondViewport": true });
            let found = self.call("Page.captureScreenshot", params);
            let path = Path::new(&folder).join(format!("{name}.png"));
            fs::write(path, decode(&found["data"])).unwrap();
        }
    }

    /// The page as it is printed, as PDF.
    pub(super) fn print(&mut self) -> Vec<u8> {
        let found = self.call("Page.printToPDF", json!({ "printBackground": false }));
        decode(&found["data"])
    }
}

/// The bytes of base64.
fn decode(data: &Value) -> Vec<u8> {
    use base64::Engine;
    let engine = base64::engine::general_purpose::STANDARD;
    engine.decode(data.as_str().unwrap()).unwrap()
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may be gone already.
        let request = json!({ "id": 0, "method": "Browser.close" });
        let _ = self.requests.write_all(format!("{request}\0").as_bytes());
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
