//! A file by http or https: asked for again only if it changed, and kept by its digest.

use std::fs::File;
use std::io::Write as _;
use std::time::SystemTime;

use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use super::address::without_secrets;
use super::{Fetched, Fetcher, Pin, WebFile};
use crate::error::{Context as _, Error, Result};
use crate::image::digest::{Digest, Key, KeyHasher};
use crate::net::{self, Caller, Problem, Tries};
use crate::quantity;

/// What a server said about an address the last time.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    digest: Digest,
    /// Seconds since 1970.
    modified: Option<i64>,
    etag: Option<String>,
    /// In the server's own words.
    last_modified: Option<String>,
}

/// By which the store keeps what is known of an address; its text stands nowhere.
fn key(file: &WebFile) -> Key {
    KeyHasher::new("kollage url 1").part("url", &file.url).finish()
}

pub(super) fn known(fetcher: &Fetcher, file: &WebFile) -> Option<Pin> {
    if let Some(digest) = &file.checksum {
        return Some(Pin::File { digest: digest.clone(), modified: None });
    }
    let record: Record = fetcher.store.source_record(&key(file))?;
    Some(Pin::File { digest: record.digest, modified: record.modified })
}

/// With a digest given there is nothing to ask.
pub(super) fn pin(fetcher: &Fetcher, file: &WebFile, caller: &Caller<'_>) -> Result<Pin> {
    if let Some(digest) = &file.checksum {
        return Ok(Pin::File { digest: digest.clone(), modified: None });
    }
    let record = fetch(fetcher, file, caller)?;
    Ok(Pin::File { digest: record.digest, modified: record.modified })
}

pub(super) fn file(fetcher: &Fetcher, file: &WebFile, digest: &Digest, caller: &Caller<'_>) -> Result<Fetched> {
    let known: Option<Record> = fetcher.store.source_record(&key(file));
    let path = fetcher.store.source_file(digest);
    if path.exists() {
        let modified = known.filter(|record| record.digest == *digest).and_then(|record| record.modified);
        return Ok(Fetched { path, modified });
    }
    let record = fetch(fetcher, file, caller)?;
    if record.digest != *digest {
        let what = if file.checksum.is_some() {
            "its digest is not the one that `--checksum` gives"
        } else {
            "it changed meanwhile"
        };
        return Err(Error::failed(what).cause(format!("it is {}, and {digest} was expected", record.digest)));
    }
    Ok(Fetched { path, modified: record.modified })
}

/// Asks the server; what it sends is in the store afterwards.
fn fetch(fetcher: &Fetcher, file: &WebFile, caller: &Caller<'_>) -> Result<Record> {
    let key = key(file);
    // Two nodes that want the same do not download it twice.
    let _lock = fetcher.store.lock_key(&key, caller.cancel)?;
    let url = Url::parse(&file.url).bad_input(|| format!("`{}` is not an address", without_secrets(&file.url)))?;
    let host = url.host_str().unwrap_or_default().to_owned();
    let options = &fetcher.options;
    let client = net::client(options.connect_timeout, options.idle_timeout, net::is_loopback(&host), false)?;
    let before: Option<Record> = fetcher.store.source_record(&key);
    let before = before.filter(|record| fetcher.store.source_file(&record.digest).exists());
    let shown = without_secrets(&file.url);
    caller.background(format!("Fetch {shown}"));
    let record = net::block_on(caller.cancel, async {
        let mut tries = Tries::default();
        loop {
            let once = Once { fetcher, client: &client, url: &url, shown: &shown, before: before.as_ref(), caller };
            match once.run().await {
                Ok(record) => return Ok(record),
                Err(problem) => net::wait(&options.retry, &mut tries, problem, &host, &shown, caller).await?,
            }
        }
    })?;
    fetcher.store.put_source_record(&key, &record)?;
    Ok(record)
}

/// One try.
struct Once<'a> {
    fetcher: &'a Fetcher,
    client: &'a reqwest::Client,
    url: &'a Url,
    shown: &'a str,
    before: Option<&'a Record>,
    caller: &'a Caller<'a>,
}

impl Once<'_> {
    async fn run(&self) -> Result<Record, Problem> {
        let mut headers = HeaderMap::new();
        // What is compressed on the way would have another digest.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(before) = self.before {
            for (name, value) in
                [(header::IF_NONE_MATCH, &before.etag), (header::IF_MODIFIED_SINCE, &before.last_modified)]
            {
                headers.extend(value.as_deref().and_then(|v| HeaderValue::from_str(v).ok()).map(|v| (name, v)));
            }
        }
        let request = self.client.get(self.url.clone()).headers(headers);
        let response = request.send().await.map_err(|e| self.transport(&e))?;
        match (response.status(), self.before) {
            (StatusCode::NOT_MODIFIED, Some(before)) => Ok(before.clone()),
            (status, _) if status.is_success() => self.receive(response).await,
            (status, _) => Err(refused(status, response.headers())),
        }
    }

    async fn receive(&self, mut response: Response) -> Result<Record, Problem> {
        let text = |name| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let (etag, last_modified) = (text(header::ETAG), text(header::LAST_MODIFIED));
        let modified = last_modified.as_deref().and_then(net::http_date).map(|time| time.as_second());
        let expected = response.content_length();
        if let Some(size) = expected {
            self.caller.background(format!("Fetch {} ({})", self.shown, quantity::shown(size)));
        }
        let work = self.fetcher.store.work_dir()?;
        let path = work.path().join("file");
        let mut out = File::create_new(&path).unusable(|| format!("cannot create {}", path.display()))?;
        let (mut hash, mut written) = (sha2::Sha256::new(), 0u64);
        while let Some(chunk) = response.chunk().await.map_err(|e| self.transport(&e))? {
            out.write_all(&chunk).unusable(|| format!("cannot write {}", path.display()))?;
            hash.update(&chunk);
            written += chunk.len() as u64;
        }
        if let Some(size) = expected.filter(|size| *size != written) {
            return Err(Problem::passing(format!("the connection ended after {written} of {size} bytes")));
        }
        let digest = Digest::from_sha256(&hash.finalize());
        self.fetcher.store.put_source_file(&path, &digest)?;
        Ok(Record { digest, modified, etag, last_modified })
    }

    fn transport(&self, error: &reqwest::Error) -> Problem {
        let options = &self.fetcher.options;
        let host = self.url.host_str().unwrap_or_default();
        let plain = "if it speaks plain HTTP, write `http://`";
        net::transport(error, host, options.connect_timeout, options.idle_timeout, plain)
    }
}

fn refused(status: StatusCode, headers: &HeaderMap) -> Problem {
    let why = format!("the server says {}", net::status_name(status));
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            Problem::Passing { why, after: net::retry_after(headers, SystemTime::now()) }
        }
        status if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED => {
            Problem::Passing { why, after: net::retry_after(headers, SystemTime::now()) }
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Problem::Lasting(Error::unusable(why).hint("it wants a login; a RUN step with a secret can give one"))
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => Problem::Lasting(Error::bad_input(why).hint("check the address")),
        _ => Problem::Lasting(Error::unusable(why).hint("check the address")),
    }
}
