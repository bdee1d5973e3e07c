//! What a person and a monitoring system see of runs: the page in a real browser, terminals of real sizes in tmux, and
//! figures as Prometheus' own programs read them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::sandbox::{Sandbox, is_root};
use crate::support::{ready, run};

/// base → web, other; `other` fails while `broken` is there.
fn family() -> Sandbox {
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nRUN sleep 0.3; echo base > /base\n");
    sandbox.image("web", "base", "FROM {{ parent }}\nRUN sleep 0.5; dd if=/dev/zero of=/web bs=1k count=900\n");
    sandbox.image("other", "base", "FROM {{ parent }}\nCOPY state /\nRUN sh /state\n");
    sandbox.write(
        "images/other/state",
        "echo '<script>document.title=\"taken over\"</script>'; echo $((40+2)) is the reason; exit 3\n",
    );
    sandbox
}

/// The page as a browser has it after its scripts ran.
fn dom(sandbox: &Sandbox, page: &Path) -> String {
    let profile = format!("--user-data-dir={}", sandbox.path("profile").display());
    let address = format!("file://{}", page.display());
    run("chromium", &["--headless", "--no-sandbox", "--disable-gpu", &profile, "--dump-dom", &address])
}

#[test]
fn a_run_is_shown_in_a_browser() {
    if !ready(&["chromium"]) {
        return;
    }
    let sandbox = family();
    sandbox.run(&["build", "-j", "2"]).exits(1);
    let page = sandbox.path("report.html");
    let out = page.to_str().unwrap();
    sandbox.run(&["report", "-o", out]).ok();
    let shown = dom(&sandbox, &page);
    assert!(shown.contains("<title>1 of 4 failed: "), "{shown}");
    for text in ["42 is the reason", "&lt;script&gt;document.title=", "worker 1", "Critical path", "not built before"] {
        assert!(shown.contains(text), "`{text}` is not in {shown}");
    }
    // Its script ran: the filter is there.
    assert!(shown.contains("<p id=\"filter\">"), "{shown}");
    let image = sandbox.path("report.png");
    let profile = format!("--user-data-dir={}", sandbox.path("profile").display());
    let shot = format!("--screenshot={}", image.display());
    let options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,900"];
    run("chromium", &[&options[..], &[&profile, &shot, &format!("file://{out}")]].concat());
    let png = fs::read(image).unwrap();
    assert!(png.starts_with(b"\x89PNG") && png.len() > 20_000, "{} bytes", png.len());
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    assert_eq!((number(16), number(20)), (1200, 900));
}

#[test]
fn runs_are_listed_found_and_foretold() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    sandbox.run(&["report"]).exits(2).says("no run is recorded");
    let plan = sandbox.run(&["plan"]).ok().stdout;
    assert!(plan.contains("not known, nothing of it was built here before"), "{plan}");
    sandbox.run(&["build"]).exits(1);
    sandbox.write("images/other/state", "true\n");
    sandbox.run(&["build"]).ok();
    let runs = sandbox.run(&["report", "--list", "--format", "json"]).ok().json();
    let counts = |i: usize| ["built", "reused", "failed"].map(|what| runs[i][what].as_u64().unwrap());
    assert_eq!((runs.as_array().unwrap().len(), counts(0), counts(1)), (2, [3, 0, 1], [1, 3, 0]));
    let first = runs[0]["name"].as_str().unwrap();
    let record = sandbox.run(&["report", first, "--format", "json"]).ok().json();
    assert_eq!(record["nodes"][1]["name"], "base");
    let table = sandbox.run(&["report", first, "--format", "markdown"]).ok().stdout;
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].ends_with("jobs: 3 built, 1 failed") || rows[0].ends_with("job: 3 built, 1 failed"), "{table}");
    assert!(
        rows.iter().any(|row| row.starts_with("| other | failed |") && row.contains("`RUN sh /state` failed")),
        "{table}"
    );
    sandbox.run(&["report", "2999"]).exits(2).says("no run `2999` is recorded");
    // What was timed is expected to take as long again.
    let plan = sandbox.run(&["plan", "--pull", "-j", "1"]).ok().stdout;
    assert!(plan.contains("with 1 job"), "{plan}");
    sandbox.run(&["store", "prune", "--all"]).ok();
    assert_eq!(sandbox.run(&["report", "--list", "--format", "json"]).ok().json().as_array().unwrap().len(), 0);
}

#[test]
fn no_secret_is_in_what_is_kept_of_a_run() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nRUN --mount=type=secret,id=token cat /run/secrets/token; exit 1\n");
    fs::write(sandbox.path("token"), "s3cret-value").unwrap();
    let secret = format!("id=token,src={}", sandbox.path("token").display());
    let file = sandbox.path("kollage.prom");
    sandbox.run(&["build", "--secret", &secret, "--metrics-file", file.to_str().unwrap()]).exits(1);
    let page = sandbox.run(&["report", "-o", "-"]).ok().stdout;
    let record = sandbox.run(&["report", "--format", "json"]).ok().stdout;
    for text in [page, record, fs::read_to_string(file).unwrap()] {
        assert!(text.contains("base") && !text.contains("s3cret"), "{text}");
    }
}

#[test]
fn prometheus_reads_the_figures() {
    if !ready(&["prometheus-node-exporter", "python3"]) {
        return;
    }
    let sandbox = family();
    fs::create_dir(sandbox.path("metrics")).unwrap();
    let file = sandbox.path("metrics/kollage.prom");
    sandbox.run(&["build", "--metrics-file", file.to_str().unwrap()]).exits(1);
    // The reference parser is strict.
    let parse = "import sys\nfrom prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
                 print(sorted(f.name for f in parse(open(sys.argv[1]).read())))";
    let families = run("/usr/bin/python3", &["-c", parse, file.to_str().unwrap()]);
    assert!(families.contains("'kollage_image_failures'"), "{families}");
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut exporter = Command::new("prometheus-node-exporter")
        .args(["--collector.disable-defaults", "--collector.textfile"])
        .arg(format!("--collector.textfile.directory={}", sandbox.path("metrics").display()))
        .arg(format!("--web.listen-address={address}"))
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let text = loop {
        match scrape(&address) {
            Some(text) => break text,
            None if start.elapsed() < Duration::from_secs(60) => std::thread::sleep(Duration::from_millis(50)),
            None => break String::new(),
        }
    };
    let _ = exporter.kill();
    let _ = exporter.wait();
    for line in [
        "kollage_image_failures_total{image=\"other\"} 1",
        "kollage_run_images{status=\"built\"} 3",
        "kollage_run_success 0",
        "node_textfile_scrape_error 0",
    ] {
        assert!(text.contains(line), "`{line}` is not in\n{text}");
    }
}

fn scrape(address: &str) -> Option<String> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.write_all(format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// What stands on a terminal of this size when the build is done, and the same with its escape sequences.
fn terminal(sandbox: &Sandbox, columns: &str, environment: &[&str]) -> (String, String) {
    // A server of its own for each call: one that is just ending takes no more sessions.
    let socket = sandbox.path(&format!("tmux-{columns}-{}", environment.join("")));
    let socket = socket.to_str().unwrap();
    let tmux = |args: &[&str]| run("tmux", &[&["-S", socket, "-f", "/dev/null"], args].concat());
    let done = sandbox.path("done");
    let command = format!(
        "cd {} && env -i PATH=$PATH HOME={} LANG=C.UTF-8 KOLLAGE_STORE={} TERM=screen {} {} build --no-cache; echo > {}; sleep 60",
        sandbox.catalogue().display(),
        sandbox.path("home").display(),
        sandbox.path("store").display(),
        environment.join(" "),
        env!("CARGO_BIN_EXE_kollage"),
        done.display()
    );
    let _ = fs::remove_file(&done);
    tmux(&["new-session", "-d", "-x", columns, "-y", "30", &command]);
    let start = Instant::now();
    while !done.exists() && start.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(50));
    }
    // What was written before the mark is on the screen once tmux has read it.
    std::thread::sleep(Duration::from_millis(300));
    let shown = (tmux(&["capture-pane", "-p"]), tmux(&["capture-pane", "-p", "-e"]));
    tmux(&["kill-server"]);
    shown
}

#[test]
fn terminals_of_all_kinds_are_served() {
    if !ready(&["tmux"]) {
        return;
    }
    let sandbox = family();
    sandbox.write("images/other/state", "true\n");
    let (text, raw) = terminal(&sandbox, "90", &[]);
    assert!(text.contains("✓ web") && text.contains("Done in") && raw.contains("\u{1b}[32m"), "{text}");
    let (text, raw) = terminal(&sandbox, "90", &["NO_COLOR=1"]);
    assert!(text.contains("✓ web") && !raw.contains('\u{1b}'), "{raw:?}");
    let (text, _) = terminal(&sandbox, "34", &[]);
    assert!(text.contains("Done in") && text.lines().all(|line| line.chars().count() <= 34), "{text}");
    for environment in [&["TERM=dumb"], &["CI=true"]] {
        let (text, raw) = terminal(&sandbox, "90", environment);
        assert!(text.contains("| ==> built in") && !text.contains("✓"), "{text}");
        assert!(environment[0] == "CI=true" || !raw.contains('\u{1b}'), "{raw:?}");
    }
}
