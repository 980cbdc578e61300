//! A real Chromium without a window, driven over WebDriver (W3C) by Debian's `chromium-driver`.
//!
//! Scripts of pages are off: what works here works without them. A browser is dear to start, so a
//! test starts one and does all that needs one.

use crate::client::{Answer, Call};
use crate::process::{Process, Start, children_of};
use crate::scratch::Scratch;
use crate::tools;
use anyhow::{Context, Result, bail};
use base64::Engine;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a step of the browser may take: a loaded machine starts one slowly.
const STEP_WITHIN: Duration = Duration::from_secs(120);

/// Member that names an element (WebDriver, section 11).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window.
pub struct Browser {
    // Declared before the folder: the processes end before their files go.
    process: Process,
    driver: SocketAddr,
    session: String,
    scratch: Scratch,
}

impl Browser {
    /// Starts one, with a window of this size.
    pub async fn start(width: u32, height: u32) -> Result<Self> {
        let (chromium, driver) = tools::chromium()?;
        let scratch = Scratch::new("browser")?;
        let mut command = Command::new(driver);
        command.arg("--port=0").env("HOME", scratch.path());
        let log = scratch.path().join("driver.log");
        let start = Start { command, log, read_stdout: true, death_signal: libc::SIGKILL };
        let (process, stdout) = Process::start(start)?;
        let stdout = stdout.context("the driver's output")?;
        let port = tokio::task::spawn_blocking(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            let said = |line: String| {
                line.split_once("started successfully on port ")?.1.trim_end_matches('.').parse::<u16>().ok()
            };
            lines.into_iter().find_map(said)
        });
        let port = tokio::time::timeout(STEP_WITHIN, port).await.context("the driver says nothing")??;
        let port = port.with_context(|| format!("the driver names no port\n{}", process.log_tail()))?;
        let mut browser =
            Self { process, driver: ([127, 0, 0, 1], port).into(), session: String::new(), scratch };
        let options = json!({
            "binary": chromium,
            "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--no-first-run", "--disable-background-networking", "--hide-scrollbars",
                format!("--window-size={width},{height}"),
                format!("--user-data-dir={}", browser.scratch_path().join("profile").display()),
            ],
            "prefs": {"profile.managed_default_content_settings.javascript": 2},
        });
        let wanted = json!({"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}});
        let begun = browser.call("POST", "/session", &wanted).await?;
        browser.session = begun["sessionId"].as_str().context("a session without an id")?.to_owned();
        Ok(browser)
    }

    fn scratch_path(&self) -> &Path {
        self.scratch.path()
    }

    async fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let path =
            if path == "/session" { path.to_owned() } else { format!("/session/{}{path}", self.session) };
        let call = Call::new(method, &path).within(STEP_WITHIN);
        let call = if method == "GET" { call } else { call.json(body) };
        let host = self.driver.to_string();
        let answer: Answer = call.header("host", host).send(self.driver).await?;
        let mut value: Value = serde_json::from_str(&answer.text()).context("no JSON of the driver")?;
        if answer.status != 200 {
            bail!("{method} {path}: {}\n{}", value["value"]["message"], self.process.log_tail());
        }
        Ok(value["value"].take())
    }

    /// Goes to a page.
    pub async fn open(&self, url: &str) -> Result<()> {
        self.call("POST", "/url", &json!({ "url": url })).await.map(|_| ())
    }

    /// Where it is.
    pub async fn url(&self) -> Result<String> {
        Ok(self.call("GET", "/url", &Value::Null).await?.as_str().unwrap_or_default().to_owned())
    }

    /// The page's source as the browser has it.
    pub async fn source(&self) -> Result<String> {
        Ok(self.call("GET", "/source", &Value::Null).await?.as_str().unwrap_or_default().to_owned())
    }

    /// How many elements there are.
    pub async fn count(&self, css: &str) -> Result<usize> {
        let found = self.call("POST", "/elements", &json!({"using": "css selector", "value": css})).await?;
        Ok(found.as_array().map_or(0, Vec::len))
    }

    async fn element(&self, using: &str, value: &str) -> Result<String> {
        let found = self.call("POST", "/element", &json!({ "using": using, "value": value })).await?;
        Ok(found[ELEMENT].as_str().context("an element without an id")?.to_owned())
    }

    /// What an element says.
    pub async fn text(&self, css: &str) -> Result<String> {
        let element = self.element("css selector", css).await?;
        let text = self.call("GET", &format!("/element/{element}/text"), &Value::Null).await?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// How wide an element is, in CSS pixels.
    pub async fn width(&self, css: &str) -> Result<f64> {
        let element = self.element("css selector", css).await?;
        let rect = self.call("GET", &format!("/element/{element}/rect"), &Value::Null).await?;
        rect["width"].as_f64().context("an element without a width")
    }

    /// Waits until an element says this: what a click has sent is answered in its own time.
    pub async fn says(&self, css: &str, words: &str) -> Result<()> {
        let give_up = Instant::now() + STEP_WITHIN;
        loop {
            // The page may be going away just now.
            let text = self.text(css).await;
            match text {
                Ok(text) if text.contains(words) => return Ok(()),
                other if Instant::now() >= give_up => bail!("{css} never says {words:?}: {other:?}"),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Waits until it is somewhere.
    pub async fn arrives(&self, url: &str) -> Result<()> {
        let give_up = Instant::now() + STEP_WITHIN;
        while self.url().await? != url {
            if Instant::now() >= give_up {
                bail!("the browser never arrives at {url}: it is at {}", self.url().await?);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Clicks on an element.
    pub async fn click(&self, css: &str) -> Result<()> {
        let element = self.element("css selector", css).await?;
        self.call("POST", &format!("/element/{element}/click"), &json!({})).await.map(|_| ())
    }

    /// Clicks on a link, by its words.
    pub async fn follow(&self, words: &str) -> Result<()> {
        let element = self.element("link text", words).await?;
        self.call("POST", &format!("/element/{element}/click"), &json!({})).await.map(|_| ())
    }

    /// Types into an element, in place of what is there.
    pub async fn fill(&self, css: &str, text: &str) -> Result<()> {
        let element = self.element("css selector", css).await?;
        self.call("POST", &format!("/element/{element}/clear"), &json!({})).await?;
        self.call("POST", &format!("/element/{element}/value"), &json!({ "text": text })).await.map(|_| ())
    }

    /// The cookies that the page has.
    pub async fn cookies(&self) -> Result<Value> {
        self.call("GET", "/cookie", &Value::Null).await
    }

    /// Makes the window this large.
    pub async fn resize(&self, width: u32, height: u32) -> Result<()> {
        self.call("POST", "/window/rect", &json!({ "width": width, "height": height })).await.map(|_| ())
    }

    /// Writes what is seen into a file (PNG).
    pub async fn picture(&self, file: &Path) -> Result<()> {
        let picture = self.call("GET", "/screenshot", &Value::Null).await?;
        let text = picture.as_str().context("no picture")?;
        let bytes = base64::prelude::BASE64_STANDARD.decode(text).context("a picture in base64")?;
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(file, bytes).with_context(|| format!("write {}", file.display()))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser would outlive its driver.
        for pid in children_of(self.process.pid()) {
            // SAFETY: plain system call. The driver lives and has not reaped its child, so the id is
            // still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}
