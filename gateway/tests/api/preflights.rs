//! What browsers ask before they ask.

use crate::world::{World, send};
use reqwest::Method;

#[tokio::test]
async fn a_preflight_is_counted_and_logged_like_any_request() {
    // Counts are kept from here on, as in every process. The line of the log comes with the count.
    drop(chassis::telemetry::init("gateway"));
    let world = World::start_with(|config| config.cors_origins = vec!["https://shop.example".parse().unwrap()]).await;
    let ask = world.client.request(Method::OPTIONS, format!("http://{}/v1/orders", world.api));
    let ask = ask.header("origin", "https://shop.example").header("access-control-request-method", "POST");
    let answer = send(ask).await;
    assert_eq!(
        (answer.status, answer.header("access-control-allow-origin")),
        (200, Some("https://shop.example")),
        "{}",
        answer.text
    );
    let metrics = send(world.client.get(format!("http://{}/metrics", world.admin))).await.text;
    let labels = ["method=\"OPTIONS\"", "route=\"/v1/orders\"", "status=\"200\""];
    let counted = |line: &str| {
        line.starts_with("http_server_request_duration_seconds_count") && labels.iter().all(|it| line.contains(it))
    };
    assert!(metrics.lines().any(counted), "{metrics}");
}
