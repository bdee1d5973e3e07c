//! One request, and whether its answer is a good one: any status below 400, as `curl --fail` has it.

use super::tls;
use super::url::Url;
use crate::environment::HealthEnvironment;
use crate::error::{Failure, Result, reason, shown};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The options of curl that mean something to a health check.
struct Options {
    url: Url,
    headers: Vec<String>,
    login: Option<String>,
    method: String,
    follow: bool,
    ca: Option<PathBuf>,
    socket: Option<PathBuf>,
    limit: Duration,
    agent: String,
    output: Option<PathBuf>,
    write_out: String,
}

const AGENT: &str = "curl-healthcheck";
const WRITE_OUT: &str = "\\n%{http_code} %{remote_ip}:%{remote_port} %{time_total} seconds\\n";
const MOST_REDIRECTIONS: usize = 10;
/// Of a header, and of all of them.
const LONGEST: u64 = 64 * 1024;

pub fn check(arguments: &[String], environment: &HealthEnvironment) -> Result<()> {
    let options = Options::read(arguments, environment)?;
    let start = Instant::now();
    let mut url = options.url.clone();
    let mut answer = Answer::default();
    let mut result = Ok(());
    for _ in 0..=MOST_REDIRECTIONS {
        answer = Answer::default();
        result = request(&url, &options, start + options.limit, &mut answer);
        match &answer.location {
            Some(location) if result.is_ok() && options.follow => url = url.join(location)?,
            _ => break,
        }
    }
    let text = answer.written_out(&options.write_out, start.elapsed());
    let _ = io::stdout().write_all(text.as_bytes());
    result?;
    match answer.status {
        200..400 => Ok(()),
        status => Err(Failure::wrong(format!("{} answers with {status}", url.authority()))),
    }
}

impl Options {
    fn read(arguments: &[String], environment: &HealthEnvironment) -> Result<Options> {
        let mut url = None;
        let mut options = Options {
            url: Url::read("http://localhost")?,
            headers: Vec::new(),
            login: None,
            method: "GET".into(),
            follow: false,
            ca: None,
            socket: None,
            limit: seconds(environment.max_time.as_deref().unwrap_or("10"))?,
            agent: environment.user_agent.clone().unwrap_or_else(|| AGENT.into()),
            output: environment.output.clone(),
            write_out: environment.write_out.clone().unwrap_or_else(|| WRITE_OUT.into()),
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if let Some(long) = argument.strip_prefix("--") {
                let (name, attached) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                if !options.flag(name) {
                    options.set(name, argument, attached.or_else(|| rest.next().map(|next| &**next)))?;
                }
            } else if argument.len() > 1 && argument.starts_with('-') {
                // Letters without a value may be written together; the value of the last one too.
                for (at, letter) in argument.char_indices().skip(1) {
                    if options.flag(letter.encode_utf8(&mut [0; 4])) {
                        continue;
                    }
                    let after = &argument[at + letter.len_utf8()..];
                    let value = if after.is_empty() { rest.next().map(|next| &**next) } else { Some(after) };
                    options.set(letter.encode_utf8(&mut [0; 4]), argument, value)?;
                    break;
                }
            } else {
                url = Some(Url::read(argument)?);
            }
        }
        options.url = url.ok_or_else(|| Failure::wrong("usage: kollage-start healthcheck http [OPTIONS] URL"))?;
        options.login = options.login.or_else(|| options.url.login.clone());
        Ok(options)
    }

    /// Whether it is an option without a value.
    fn flag(&mut self, name: &str) -> bool {
        match name {
            "L" | "location" => self.follow = true,
            "I" | "head" => self.method = "HEAD".into(),
            // What a check does anyway.
            "k" | "insecure" | "s" | "silent" | "S" | "show-error" | "f" | "fail" | "g" | "globoff" | "q"
            | "disable" => {}
            _ => return false,
        }
        true
    }

    fn set(&mut self, name: &str, argument: &str, value: Option<&str>) -> Result<()> {
        let value = || value.map(String::from).ok_or_else(|| Failure::wrong(format!("{argument} needs a value")));
        match name {
            "H" | "header" => self.headers.push(header(value()?)?),
            "u" | "user" => self.login = Some(value()?),
            "X" | "request" => self.method = header(value()?)?,
            "cacert" | "ca" => self.ca = Some(value()?.into()),
            "unix-socket" => self.socket = Some(value()?.into()),
            "m" | "max-time" | "timeout" => self.limit = seconds(&value()?)?,
            "A" | "user-agent" => self.agent = header(value()?)?,
            "o" | "output" => self.output = Some(value()?.into()),
            "w" | "write-out" => self.write_out = value()?,
            // There is one limit, and one try; an engine asks again.
            "connect-timeout" | "retry" | "noproxy" => drop(value()?),
            _ => return Err(Failure::wrong(format!("a health check does not know curl's {argument}"))),
        }
        Ok(())
    }
}

fn seconds(text: &str) -> Result<Duration> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|limit| !limit.is_zero()).ok_or_else(|| Failure::wrong(format!("`{text}` is no number of seconds")))
}

fn header(text: String) -> Result<String> {
    let whole = !text.contains(['\r', '\n']);
    whole.then_some(text).ok_or_else(|| Failure::wrong("a header can't have more than one line"))
}

#[derive(Default)]
struct Answer {
    status: u16,
    location: Option<String>,
    remote: Option<SocketAddr>,
    size: u64,
}

impl Answer {
    /// curl's `--write-out`, as far as there is something to say.
    fn written_out(&self, format: &str, time: Duration) -> String {
        let format = format.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r");
        let mut text = String::new();
        let mut rest = &*format;
        while let Some((before, after)) = rest.split_once("%{") {
            text.push_str(before);
            let Some((name, after)) = after.split_once('}') else {
                text.push_str("%{");
                rest = after;
                continue;
            };
            rest = after;
            match name {
                "http_code" | "response_code" => text.push_str(&format!("{:03}", self.status)),
                "remote_ip" => text.extend(self.remote.map(|remote| remote.ip().to_string())),
                "remote_port" => text.push_str(&self.remote.map_or(0, |remote| remote.port()).to_string()),
                "time_total" => text.push_str(&format!("{:.6}", time.as_secs_f64())),
                "size_download" => text.push_str(&self.size.to_string()),
                _ => {}
            }
        }
        text.push_str(rest);
        text
    }
}

fn request(url: &Url, options: &Options, deadline: Instant, answer: &mut Answer) -> Result<()> {
    let failed = |error: io::Error| {
        let timed_out = matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
        let why = if timed_out { "it took too long".into() } else { reason(&error) };
        Failure::wrong(format!("{} does not answer: {why}", url.authority()))
    };
    let stream = connect(url, options, deadline, answer)?;
    if url.tls {
        let mut client = tls::client(&url.host, options.ca.as_deref())?;
        let mut stream = stream;
        exchange(rustls::Stream::new(&mut client, &mut stream), url, options, answer).map_err(failed)
    } else {
        exchange(stream, url, options, answer).map_err(failed)
    }
}

fn connect(url: &Url, options: &Options, deadline: Instant, answer: &mut Answer) -> Result<Timed> {
    if let Some(path) = &options.socket {
        let socket = UnixStream::connect(path);
        let socket = socket.map_err(|error| Failure::system(format_args!("connect to {}", shown(path)), error))?;
        return Ok(Timed { socket: Socket::Unix(socket), deadline });
    }
    let mut failure = None;
    for address in url.addresses()? {
        let address = SocketAddr::new(address, url.port);
        let connected = left(deadline).and_then(|left| TcpStream::connect_timeout(&address, left));
        match connected {
            Ok(socket) => {
                answer.remote = Some(address);
                return Ok(Timed { socket: Socket::Tcp(socket), deadline });
            }
            Err(error) => failure = Some(Failure::system(format_args!("connect to {address}"), error)),
        }
    }
    Err(failure.unwrap_or_else(|| Failure::wrong(format!("{} has no address", url.authority()))))
}

fn exchange(mut stream: impl Read + Write, url: &Url, options: &Options, answer: &mut Answer) -> io::Result<()> {
    let mut request = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", options.method, url.path, url.authority());
    request.push_str(&format!("User-Agent: {}\r\nAccept: */*\r\nConnection: close\r\n", options.agent));
    if let Some(login) = &options.login {
        request.push_str(&format!("Authorization: Basic {}\r\n", base64(login.as_bytes())));
    }
    for header in &options.headers {
        request.push_str(&format!("{header}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes())?;
    stream.flush()?;

    let mut reader = BufReader::new(stream);
    let status = line(&mut reader)?;
    let code = status.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|code| code.parse().ok());
    answer.status = code.ok_or_else(|| io::Error::other("it does not speak HTTP"))?;
    let (mut length, mut chunked) = (None, false);
    let mut headers = 0;
    loop {
        let header = line(&mut reader)?;
        headers += header.len() as u64;
        if header.is_empty() {
            break;
        }
        if headers > LONGEST {
            return Err(io::Error::other("its headers don't end"));
        }
        let Some((name, value)) = header.split_once(':') else { continue };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok(),
            "transfer-encoding" => chunked = value.to_ascii_lowercase().contains("chunked"),
            "location" if (300..400).contains(&answer.status) => answer.location = Some(value.trim().into()),
            _ => {}
        }
    }
    // A body that nobody wants isn't waited for.
    let Some(output) = options.output.as_ref().filter(|output| output.as_os_str() != "/dev/null") else {
        return Ok(());
    };
    let mut output = fs::File::create(output)?;
    answer.size = body(&mut reader, &mut output, length, chunked)?;
    Ok(())
}

fn body(reader: &mut impl BufRead, output: &mut impl Write, length: Option<u64>, chunked: bool) -> io::Result<u64> {
    if !chunked {
        return match length {
            Some(length) => io::copy(&mut reader.take(length), output),
            None => io::copy(reader, output),
        };
    }
    let mut size = 0;
    loop {
        let head = line(reader)?;
        let length = u64::from_str_radix(head.split(';').next().unwrap_or_default().trim(), 16);
        match length.map_err(|_| io::Error::other("a chunk without a length"))? {
            0 => return Ok(size),
            length => size += io::copy(&mut reader.take(length), output)?,
        }
        line(reader)?;
    }
}

fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    reader.take(LONGEST).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::Error::other("the answer is cut off"));
    }
    line.pop_if(|last| *last == b'\r');
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// A connection on which nothing waits past a deadline.
struct Timed {
    socket: Socket,
    deadline: Instant,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = Some(left(self.deadline)?);
        match &mut self.socket {
            Socket::Tcp(socket) => socket.set_read_timeout(left).and_then(|()| socket.read(buffer)),
            Socket::Unix(socket) => socket.set_read_timeout(left).and_then(|()| socket.read(buffer)),
        }
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let left = Some(left(self.deadline)?);
        match &mut self.socket {
            Socket::Tcp(socket) => socket.set_write_timeout(left).and_then(|()| socket.write(buffer)),
            Socket::Unix(socket) => socket.set_write_timeout(left).and_then(|()| socket.write(buffer)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit) & 0x3f) as usize;
            text.push(if digit <= three.len() { char::from(DIGITS[index]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_encoded() {
        for (plain, wanted) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("a:b?>", "YTpiPz4=")] {
            assert_eq!(base64(plain.as_bytes()), wanted);
        }
    }

    #[test]
    fn chunks_are_put_together() {
        let mut output = Vec::new();
        let size = body(&mut &b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"[..], &mut output, None, true).unwrap();
        assert_eq!((size, &output[..]), (13, &b"abc0123456789"[..]));
        assert!(body(&mut &b"zz\r\n"[..], &mut Vec::new(), None, true).is_err());
    }

    #[test]
    fn what_is_written_out_is_curls() {
        let remote = Some("[::1]:80".parse().unwrap());
        let answer = Answer { status: 204, remote, ..Answer::default() };
        let text = answer.written_out(WRITE_OUT, Duration::from_millis(1500));
        assert_eq!(text, "\n204 ::1:80 1.500000 seconds\n");
        assert_eq!(Answer::default().written_out("%{http_code}%{x} %{", Duration::ZERO), "000 %{");
    }
}
