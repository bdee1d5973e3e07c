//! Images that have little: one static program and nothing else, and one for musl. Both are checked, deployed and adopted
//! as they are, with the runtime as it is shipped.

use std::fs;
use std::net::TcpListener;

use crate::deploy::{ask, shipped};
use crate::sandbox::{Sandbox, ran};
use crate::tools::{Docker, ready, run};

const PROGRAM: &str = r#"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 2) { puts("tiny says hello"); return 0; }
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 8)) { perror("tiny"); return 1; }
    for (;;) {
        char asked[512];
        int client = accept(listener, 0, 0);
        if (read(client, asked, sizeof asked) > 0) dprintf(client, "HTTP/1.0 200 OK\r\n\r\ntiny as %d\n", getuid());
        close(client);
    }
}
"#;

const START: &str = r#"
[service]
summary = "Says hello"
command = ["/tiny", "${PORT}"]
health = ["http", "http://127.0.0.1:${PORT}/"]

[user]
name = "tiny"
uid = 4711

[variables]
PORT = { summary = "Port", default = "80" }

[[directory]]
path = "/var/lib/tiny"
owner = "tiny"

[[task]]
name = "hello"
variable = "HELLO"
[[task.step]]
title = "Say it"
run = ["/tiny"]
"#;

/// The program alone, with its loader where it takes one; as a tar of all files.
fn image(sandbox: &Sandbox, compiler: &[&str], loader: Option<&str>) -> String {
    let root = sandbox.path("root");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(root.join("lib")).unwrap();
    fs::write(sandbox.path("tiny.c"), PROGRAM).unwrap();
    let (source, program) = (sandbox.path("tiny.c"), root.join("tiny"));
    let files = ["-o", program.to_str().unwrap(), source.to_str().unwrap()];
    run(compiler[0], &[&compiler[1..], &files[..]].concat());
    if let Some(loader) = loader {
        fs::copy(loader, root.join(loader.trim_start_matches('/'))).unwrap();
    }
    let tar = sandbox.path("root.tar").display().to_string();
    run("tar", &["-C", root.to_str().unwrap(), "-cf", &tar, "."]);
    tar
}

#[test]
fn one_static_program_and_one_for_musl_are_started() {
    if !ready(&["dockerd", "docker", "gcc", "musl-gcc"]) {
        return;
    }
    let loader = "/lib/ld-musl-x86_64.so.1";
    let docker = Docker::start();
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\n");
    sandbox.write("start-scripts/tiny/start.toml", START);
    let runtime = shipped().display().to_string();
    let bundle = sandbox.path("bundle").display().to_string();
    sandbox.run(&["start", "pack", "-o", &format!("dir:{bundle}"), "--runtime", &runtime]).ok();
    let saved = |name: &str, tar: &str| {
        docker.run(&["import", tar, name]);
        let archive = sandbox.path("saved.tar").display().to_string();
        docker.run(&["save", "-o", &archive, name]);
        format!("docker-archive:{archive}")
    };
    let check = |image: &str| sandbox.run(&["start", "check", image, "--service", "tiny"]);
    let broken = saved("tiny:broken", &image(&sandbox, &["musl-gcc"], None));
    assert!(check(&broken).exits(4).stdout.contains(&format!("/tiny takes {loader}, which isn't there")));

    let mut services = String::new();
    for (name, compiler, loader) in [("plain", &["gcc", "-static"][..], None), ("musl", &["musl-gcc"], Some(loader))] {
        let archive = saved(&format!("tiny:{name}"), &image(&sandbox, compiler, loader));
        check(&archive).ok();
        let adopted = format!("adopted-{name}");
        sandbox.run(&["start", "adopt", &archive, "--service", "tiny", "-t", &adopted, "--runtime", &runtime]).ok();
        let said = sandbox.run(&["run", "-e", "HELLO=", &adopted]).ok().says("tiny: hello is done").stdout;
        assert_eq!(said, "tiny says hello\n");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        services.push_str(&format!(
            "[[service]]\nname = \"{name}\"\nstart = \"tiny\"\nimage = \"tiny:{name}\"\nnetwork = \"host\"\n\
             environment = {{ PORT = \"{port}\" }}\nhealth_timeout = 60\n"
        ));
    }
    let head = format!("[deployment]\nname = \"little\"\n[bundle]\ndirectory = \"{bundle}\"\n");
    sandbox.write("deployment.toml", &(head + &services));
    let deploy = |args: &[&str]| ran(sandbox.command(&[&["deploy"], args].concat()).env("DOCKER_HOST", docker.host()));
    deploy(&["up"]).ok();
    let ports = services.split("PORT = \"").skip(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap());
    let pages: Vec<String> = ports.map(ask).collect();
    assert_eq!(pages, ["tiny as 4711", "tiny as 4711"]);
    let hello = deploy(&["task", "musl", "hello"]).ok();
    assert!(hello.stderr.contains("    tiny says hello"), "{}", hello.stderr);
    deploy(&["down", "--volumes"]).ok();
}
