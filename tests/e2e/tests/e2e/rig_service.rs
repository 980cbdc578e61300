//! The rig's handling of the service process.

use fencepost_rig::client::Call;
use fencepost_rig::postgres::Postgres;
use fencepost_rig::scratch::Scratch;
use fencepost_rig::service::{Options, Service};
use std::time::Duration;

async fn health(service: &Service) -> anyhow::Result<u16> {
    Ok(Call::get("/healthz").within(Duration::from_millis(500)).send(service.addr()).await?.status)
}

#[tokio::test]
async fn a_killed_service_comes_back_on_its_port_with_its_store() {
    let files = Scratch::new("rig-test").unwrap();
    let url = format!("sqlite:{}", files.path().join("a.sqlite").display());
    let service = Service::start(Options::on(&url)).await.unwrap();
    let ready = service.ready();
    assert_eq!(health(&service).await.unwrap(), 200);
    service.kill().await.unwrap();
    assert!(health(&service).await.is_err());
    service.start_again().await.unwrap();
    assert_eq!(service.ready(), ready);
    assert!(service.stop().await.unwrap().success());
}

#[tokio::test]
async fn a_frozen_service_is_silent_and_goes_on_after_the_thaw() {
    let url = Postgres::shared().await.create_database().await;
    let service = Service::start(Options::on(&url)).await.unwrap();
    service.freeze();
    assert!(health(&service).await.is_err());
    service.thaw();
    assert_eq!(health(&service).await.unwrap(), 200);
}

#[tokio::test]
async fn a_service_that_does_not_start_says_why() {
    let error = Service::start(Options::on("nonsense:")).await.err().unwrap();
    assert!(format!("{error:?}").contains("store"), "{error:?}");
}
