//! Health checks, by our names and Kolla's, on sockets of this very process.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

/// Runs a check by one of Kolla's names. Its exit code and all that it said.
fn check(name: &str, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kollage-start"));
    command.arg0(format!("/usr/local/bin/healthcheck_{name}")).args(arguments).env("HEALTHCHECK_CURL_MAX_TIME", "20");
    let output = command.output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[track_caller]
fn well(name: &str, arguments: &[&str]) {
    let (code, text) = check(name, arguments);
    assert_eq!(code, 0, "{text}");
}

#[track_caller]
fn unwell(name: &str, arguments: &[&str], part: &str) {
    let (code, text) = check(name, arguments);
    assert!(code == 1 && text.contains(part), "{code}: {text}");
}

/// A pattern that finds this process by its arguments.
fn own_name() -> String {
    let name = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    format!("/{name}( |$)")
}

/// Listens on any port of an address, unless the machine has no such address.
fn listener(address: impl Into<std::net::IpAddr>) -> Option<(TcpListener, u16)> {
    let listener = TcpListener::bind(SocketAddr::new(address.into(), 0)).ok()?;
    let port = listener.local_addr().unwrap().port();
    Some((listener, port))
}

#[test]
fn ports_that_a_process_listens_on() {
    let name = own_name();
    let listeners = [listener(Ipv4Addr::LOCALHOST), listener(Ipv6Addr::LOCALHOST)];
    for (_, port) in listeners.iter().flatten() {
        let port = port.to_string();
        well("listen", &[&name, &port]);
        well("listen", &[&name, "1", &port]);
        well("listen", &[&name, &format!("1 {port}")]);
        unwell("listen", &["no-such-process-as-this", &port], "no process is like `no-such-process-as-this`");
        unwell("port", &[&name, &port], "is connected with port");
    }
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    well("listen", &[&name, &udp.local_addr().unwrap().port().to_string()]);
    unwell("listen", &[&name, "1"], "listens on port 1");
    unwell("listen", &[&name], "usage: kollage-start healthcheck listen PROCESS PORT…");
    unwell("listen", &[&name, "http"], "`http` is no port");
    unwell("listen", &["(", "1"], "no regular expression");
}

#[test]
fn ports_that_a_process_is_connected_with() {
    let name = own_name();
    for (listener, port) in [listener(Ipv4Addr::LOCALHOST), listener(Ipv6Addr::LOCALHOST)].into_iter().flatten() {
        let text = port.to_string();
        unwell("port", &[&name, &text], "is connected with port");
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        well("port", &[&name, &text]);
        // Not a port that only begins with the same digits.
        unwell("port", &[&name, &text[..text.len() - 1]], "is connected with port");
        drop(connection);
    }
}

#[test]
fn sockets_that_a_process_has_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a socket.sock");
    let text = path.to_str().unwrap();
    let name = std::fs::read_to_string("/proc/self/comm").unwrap();
    let name = name.trim();
    unwell("socket", &[name, text], "has the socket");
    let _listener = UnixListener::bind(&path).unwrap();
    well("socket", &[name, text]);
    unwell("socket", &["systemd-nothing", text], "no process is like");
}

#[test]
fn files_by_their_age() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    well("filemod", &[path, "60"]);
    file.as_file().set_modified(SystemTime::now() - Duration::from_secs(1000)).unwrap();
    unwell("filemod", &[path, "60"], "seconds ago, more than 60");
    well("filemod", &[path, "2000"]);
    unwell("filemod", &["/none", "60"], "/none");
    unwell("filemod", &["/etc", "60"], "/etc is no file");
    unwell("filemod", &[path, "soon"], "`soon` is no number");
}

/// Answers every request with what is given, and hands back what was asked.
fn serve(mut stream: impl Read + Write, answer: &str) -> String {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(length) => request.extend_from_slice(&buffer[..length]),
        }
    }
    let _ = stream.write_all(answer.as_bytes());
    let _ = stream.flush();
    String::from_utf8_lossy(&request).into_owned()
}

/// A server that gives these answers one after the other. The requests come back at its end.
fn server(answers: &'static [&'static str]) -> (u16, thread::JoinHandle<Vec<String>>) {
    let (listener, port) = listener(Ipv4Addr::LOCALHOST).unwrap();
    let requests =
        thread::spawn(move || answers.iter().map(|answer| serve(listener.accept().unwrap().0, answer)).collect());
    (port, requests)
}

#[test]
fn answers_over_http() {
    for (answer, good) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", true),
        ("HTTP/1.1 300 Multiple Choices\r\n\r\n", true),
        ("HTTP/1.0 204 No Content\r\n\r\n", true),
        ("HTTP/1.1 404 Not Found\r\n\r\n", false),
        ("HTTP/1.1 503 Service Unavailable\r\n\r\n", false),
        ("SSH-2.0-OpenSSH\r\n", false),
        ("HTTP/1.1 200 OK", false),
        ("", false),
    ] {
        let answers: &'static [&'static str] = Box::leak(Box::new([answer]));
        let (port, requests) = server(answers);
        let (code, text) = check("curl", &["-u", "user:pass", &format!("http://127.0.0.1:{port}/v3?x")]);
        assert_eq!(code, i32::from(!good), "{answer:?}: {text}");
        let request = &requests.join().unwrap()[0];
        for part in [
            "GET /v3?x HTTP/1.1\r\n",
            &format!("Host: 127.0.0.1:{port}\r\n"),
            "User-Agent: curl-healthcheck\r\n",
            "Authorization: Basic dXNlcjpwYXNz\r\n",
        ] {
            assert!(request.contains(part), "no {part:?} in {request:?}");
        }
    }
    let (_, port) = listener(Ipv4Addr::LOCALHOST).unwrap();
    let (code, text) = check("curl", &[&format!("127.0.0.1:{port}")]);
    assert!(code == 1 && text.contains("connection refused") && text.contains("\n000 :0 "), "{text}");
    unwell("curl", &["http://no-such-host.invalid/"], "is not in /etc/hosts");
    unwell("curl", &["--frobnicate", "http://127.0.0.1/"], "does not know curl's --frobnicate");
    unwell("curl", &[], "usage");
}

#[test]
fn redirections_are_followed_when_asked_for() {
    let (port, requests) = server(&["HTTP/1.1 301 Moved\r\nLocation: /there\r\n\r\n", "HTTP/1.1 500 Oh\r\n\r\n"]);
    unwell("curl", &["-sL", &format!("http://127.0.0.1:{port}/here")], "answers with 500");
    assert!(requests.join().unwrap()[1].starts_with("GET /there "));
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let (_listener, port) = listener(Ipv4Addr::LOCALHOST).unwrap();
    unwell("curl", &["--max-time", "0.2", &format!("http://127.0.0.1:{port}/")], "it took too long");
}

#[test]
fn answers_over_a_unix_socket_and_into_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let served = thread::spawn(move || serve(listener.accept().unwrap().0, answer));
    let output = directory.path().join("out");
    well("curl", &["--unix-socket", path.to_str().unwrap(), "-o", output.to_str().unwrap(), "http://localhost/"]);
    assert_eq!(std::fs::read(output).unwrap(), b"ok");
    assert!(served.join().unwrap().contains("Host: localhost\r\n"));
}

#[test]
fn tls_is_verified_only_against_a_ca_that_is_given() {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let chain = vec![CertificateDer::from_pem_slice(include_bytes!("data/server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("data/server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/start/data");
    let (ca, other) = (format!("{data}/ca.pem"), format!("{data}/server.pem"));
    for (address, host) in
        [(std::net::IpAddr::from(Ipv4Addr::LOCALHOST), "127.0.0.1"), (Ipv6Addr::LOCALHOST.into(), "[::1]")]
    {
        let Some((listener, port)) = listener(address) else { continue };
        let config = config.clone();
        let served = thread::spawn(move || {
            for _ in 0..3 {
                let stream = listener.accept().unwrap().0;
                let connection = rustls::ServerConnection::new(config.clone()).unwrap();
                serve(rustls::StreamOwned::new(connection, stream), "HTTP/1.1 200 OK\r\n\r\n");
            }
        });
        let url = format!("https://{host}:{port}/");
        well("curl", &[&url]);
        well("curl", &["--cacert", &ca, &url]);
        unwell("curl", &["--cacert", &other, &url], "invalid peer certificate");
        served.join().unwrap();
    }
}
