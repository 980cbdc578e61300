//! What is broken, and how it is mended.

use crate::world::{World, side_of};
use anyhow::{Context, Result};
use fencepost_rig::envoy::Envoy;
use fencepost_rig::link::{Link, Weather};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// A link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Between clients and a proxy.
    Client(usize),
    /// Between the proxies and an instance.
    Service(usize),
    /// Between an instance and the database.
    Database(usize),
    /// Between primary and standby.
    Standby,
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A link is bad.
    Link(Place, Weather),
    /// An instance is killed.
    ServiceKilled(usize),
    /// An instance hangs.
    ServiceFrozen(usize),
    /// A proxy is killed.
    EnvoyKilled(usize),
    /// A proxy hangs.
    EnvoyFrozen(usize),
    /// A proxy gets another configuration of its filter.
    EnvoyReloaded(usize),
    /// The database is killed with everything it runs.
    DatabaseKilled,
    /// The database hangs.
    DatabaseFrozen,
    /// The database is stopped in order.
    DatabaseStopped,
    /// The standby is killed, so that nothing can be confirmed.
    StandbyKilled,
    /// The standby hangs.
    StandbyFrozen,
    /// The primary dies and the standby is promoted.
    FailedOver,
    /// Everything is restarted in order, one part after the other.
    RollingRestart,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Fault {
    /// What it is, whichever side it strikes and however long it lasts.
    pub fn kind(self) -> String {
        let named = |debug: String| debug.split('(').next().unwrap_or_default().to_owned();
        match self {
            Self::Link(place, weather) => {
                format!("Link {} {}", named(format!("{place:?}")), named(format!("{weather:?}")))
            }
            other => named(other.to_string()),
        }
    }

    /// Breaks it.
    pub async fn strike(self, world: &World) -> Result<()> {
        match self {
            Self::Link(place, weather) => place.link(world).set(weather),
            Self::ServiceKilled(n) => drop(side_of(&world.services, n).kill().await?),
            Self::ServiceFrozen(n) => side_of(&world.services, n).freeze(),
            Self::EnvoyKilled(n) => world.end_envoy(n, true).await?,
            Self::EnvoyFrozen(n) => world.envoy(n)?.freeze(),
            Self::EnvoyReloaded(n) => reload(&world.envoy(n)?).await?,
            Self::DatabaseKilled => world.primary().kill().await?,
            Self::DatabaseFrozen => world.primary().freeze(),
            Self::DatabaseStopped => world.primary().stop().await?,
            Self::StandbyKilled => world.standby()?.kill().await?,
            Self::StandbyFrozen => world.standby()?.freeze(),
            Self::FailedOver => world.fail_over().await?,
            Self::RollingRestart => rolling_restart(world).await?,
        }
        Ok(())
    }

    /// Mends it, and waits until it is mended.
    pub async fn heal(self, world: &World) -> Result<()> {
        match self {
            Self::Link(place, _) => {
                place.link(world).set(Weather::Fair);
                if place == Place::Standby {
                    world.primary().wait_streaming().await?;
                }
            }
            Self::ServiceKilled(n) => side_of(&world.services, n).start_again().await?,
            Self::ServiceFrozen(n) => side_of(&world.services, n).thaw(),
            Self::EnvoyKilled(n) => world.start_envoy(n).await?,
            Self::EnvoyFrozen(n) => world.envoy(n)?.thaw(),
            Self::EnvoyReloaded(_) | Self::RollingRestart => {}
            Self::DatabaseKilled | Self::DatabaseStopped => {
                world.primary().start_again().await?;
                if world.standby().is_ok() {
                    world.primary().wait_streaming().await?;
                }
            }
            Self::DatabaseFrozen => world.primary().thaw(),
            Self::StandbyKilled => {
                world.standby()?.start_again().await?;
                world.primary().wait_streaming().await?;
            }
            Self::StandbyFrozen => world.standby()?.thaw(),
            Self::FailedOver => world.add_standby().await?,
        }
        Ok(())
    }
}

impl Place {
    /// The link.
    pub fn link(self, world: &World) -> &Link {
        match self {
            Self::Client(n) => side_of(&world.to_envoy, n),
            Self::Service(n) => side_of(&world.to_service, n),
            Self::Database(n) => side_of(&world.to_database, n),
            Self::Standby => &world.to_primary,
        }
    }
}

/// Gives a proxy another configuration of the filter, and waits until it has it.
async fn reload(envoy: &Arc<Envoy>) -> Result<()> {
    let updates = "listener_manager.lds.update_success";
    let before = envoy.stat(updates).await?;
    let mut changed = None;
    envoy.update_listeners(|listeners| changed = longer_keys(listeners))?;
    changed.context("the filter is not in the listener")?;
    envoy.wait_stat(updates, |count| count > before).await
}

/// Lets keys be one character longer: a change that matters to nobody.
fn longer_keys(listeners: &mut Value) -> Option<()> {
    let filters =
        listeners.pointer_mut("/0/filter_chains/0/filters/0/typed_config/http_filters")?.as_array_mut()?;
    let filter = filters.iter_mut().find(|filter| filter["name"] == "envoy.filters.http.wasm")?;
    let text = filter.pointer_mut("/typed_config/config/configuration/value")?;
    let mut configuration: Value = serde_json::from_str(text.as_str()?).ok()?;
    let length = configuration.pointer("/policies/pay/key/max_length").and_then(Value::as_u64).unwrap_or(200);
    configuration["policies"]["pay"]["key"]["max_length"] = (length + 1).into();
    *text = configuration.to_string().into();
    Some(())
}

/// Proxies drain before they end; the database is the last, with a standby by a failover.
async fn rolling_restart(world: &World) -> Result<()> {
    for side in [0, 1] {
        world.end_envoy(side, false).await?;
        world.start_envoy(side).await?;
    }
    for service in &world.services {
        service.stop().await?;
        service.start_again().await?;
    }
    world.primary().restart().await?;
    if let Ok(standby) = world.standby() {
        standby.restart().await?;
        world.primary().wait_streaming().await?;
    }
    Ok(())
}
