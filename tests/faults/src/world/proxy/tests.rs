use std::{
    io::ErrorKind,
    sync::atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, timeout},
};

use super::*;

/// Longer than anything takes that happens at all.
const SOON: Duration = Duration::from_secs(5);
/// Long enough for bytes that are free to go.
const MOMENT: Duration = Duration::from_millis(150);

/// A server that sends back what it gets, and counts it.
struct Echo {
    address: SocketAddr,
    received: Arc<AtomicUsize>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, received) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let (tasks, count) = (Tasks::new(), received.clone());
        tasks.clone().spawn("echo", async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let count = count.clone();
                tasks.spawn("echo connection", async move {
                    let mut buffer = [0; 64];
                    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                        count.fetch_add(n, Ordering::SeqCst);
                        if stream.write_all(&buffer[..n]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, received }
    }

    fn received(&self) -> usize {
        self.received.load(Ordering::SeqCst)
    }
}

async fn road() -> (Proxy, Echo) {
    let echo = Echo::start().await;
    let any = "127.0.0.1:0".parse().unwrap();
    (Proxy::start("a/b", any, vec![echo.address], &Tasks::new()).await.unwrap(), echo)
}

async fn say(stream: &mut TcpStream) {
    stream.write_all(b"ping").await.unwrap();
}

/// What comes back: bytes, nothing at all, an orderly end, or a reset.
async fn hear(stream: &mut TcpStream, within: Duration) -> Result<Option<Vec<u8>>, ErrorKind> {
    let mut buffer = [0; 64];
    match timeout(within, stream.read(&mut buffer)).await {
        Err(_) => Ok(None),
        Ok(Ok(n)) => Ok(Some(buffer[..n].to_vec())),
        Ok(Err(error)) => Err(error.kind()),
    }
}

async fn connected(proxy: &Proxy) -> TcpStream {
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    say(&mut stream).await;
    assert_eq!(hear(&mut stream, SOON).await, Ok(Some(b"ping".to_vec())));
    stream
}

#[tokio::test]
async fn a_road_without_trouble_carries_both_ways_and_its_end() {
    let (proxy, _echo) = road().await;
    let mut stream = connected(&proxy).await;
    stream.shutdown().await.unwrap();
    assert_eq!(hear(&mut stream, SOON).await, Ok(Some(vec![])));
}

#[tokio::test]
async fn the_next_server_is_taken_when_the_first_is_down() {
    let (echo, any) = (Echo::start().await, "127.0.0.1:0".parse().unwrap());
    let down = free_port::one().unwrap();
    let proxy = Proxy::start("a/b", any, vec![down, echo.address], &Tasks::new()).await.unwrap();
    connected(&proxy).await;
}

#[tokio::test]
async fn a_cut_road_resets_old_and_new_connections_until_it_is_healed() {
    let (proxy, _echo) = road().await;
    let mut old = connected(&proxy).await;
    proxy.make(Trouble::Cut);
    assert_eq!(hear(&mut old, SOON).await, Err(ErrorKind::ConnectionReset));
    let mut new = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(hear(&mut new, SOON).await, Err(ErrorKind::ConnectionReset));
    proxy.make(Trouble::None);
    connected(&proxy).await;
}

#[tokio::test]
async fn a_slow_road_takes_its_time_both_ways() {
    let (proxy, _echo) = road().await;
    let mut stream = connected(&proxy).await;
    proxy.make(Trouble::Delay(MOMENT));
    let begun = Instant::now();
    say(&mut stream).await;
    assert_eq!(hear(&mut stream, SOON).await, Ok(Some(b"ping".to_vec())));
    assert!(begun.elapsed() >= MOMENT * 2, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_stalled_road_delivers_when_it_is_healed() {
    let (proxy, echo) = road().await;
    let mut stream = connected(&proxy).await;
    proxy.make(Trouble::Stall);
    say(&mut stream).await;
    assert_eq!((hear(&mut stream, MOMENT).await, echo.received()), (Ok(None), 4));
    proxy.make(Trouble::None);
    assert_eq!(hear(&mut stream, SOON).await, Ok(Some(b"ping".to_vec())));
}

#[tokio::test]
async fn a_half_open_road_swallows_everything_and_tells_when_it_is_healed() {
    let (proxy, echo) = road().await;
    let mut old = connected(&proxy).await;
    proxy.make(Trouble::HalfOpen);
    let mut new = TcpStream::connect(proxy.address()).await.unwrap();
    for stream in [&mut old, &mut new] {
        say(stream).await;
        assert_eq!((hear(stream, MOMENT).await, echo.received()), (Ok(None), 4));
    }
    proxy.make(Trouble::None);
    for stream in [&mut old, &mut new] {
        assert_eq!(hear(stream, SOON).await, Err(ErrorKind::ConnectionReset));
    }
    assert_eq!(echo.received(), 4);
}

#[tokio::test]
async fn a_dropped_reply_belongs_to_a_request_that_arrived() {
    let (proxy, echo) = road().await;
    let mut old = connected(&proxy).await;
    proxy.make(Trouble::DropReply);
    let mut new = TcpStream::connect(proxy.address()).await.unwrap();
    for stream in [&mut old, &mut new] {
        say(stream).await;
        assert_eq!(hear(stream, SOON).await, Err(ErrorKind::ConnectionReset));
    }
    assert_eq!(echo.received(), 12);
}

#[tokio::test]
async fn what_was_sent_arrives_although_its_sender_is_gone() {
    for trouble in [Trouble::Stall, Trouble::Delay(MOMENT)] {
        let (proxy, echo) = road().await;
        let mut stream = connected(&proxy).await;
        proxy.make(trouble);
        say(&mut stream).await;
        // The proxy has the bytes before the reset overtakes them.
        assert_eq!(hear(&mut stream, MOMENT / 2).await, Ok(None));
        stream.set_zero_linger().unwrap();
        drop(stream);
        assert_eq!(echo.received(), 4);
        proxy.make(Trouble::None);
        timeout(SOON, async {
            while echo.received() < 8 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("the bytes arrive");
    }
}
