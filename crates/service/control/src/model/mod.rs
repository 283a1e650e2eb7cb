//! The values of the API. Doc comments are the descriptions of their JSON schemas.
//!
//! Sizes are in bytes and say so; moments are text in UTC (RFC 3339); unknown values are `null`.

mod array;
mod elevators;
mod jobs;
mod members;
mod problem;
mod settings;
mod shape;
mod status;
mod stop;
mod top;

pub use array::{
    Advice, Array, Bitmap, Clients, Failure, Journal, LeftOut, Link, ParityLogs, ReadErrors, Role,
    Server, Slot, SlotState, Spread, State,
};
pub use elevators::{ElevatorRow, Elevators, SliceRow};
pub use jobs::{
    Checked, Found, FoundFate, FoundKind, FoundRun, Job, JobEffect, JobKind, JobPace, JobRequest,
    JobResult, JobState, JobsAnswer, JobsWanted, LastJob, PacePhase,
};
pub use members::{MemberChanged, MemberEffect, MemberRequest, MembersAnswer, MembersWanted};
pub use problem::{Problem, ProblemRemedy, RemedyRisk};
pub use settings::{Change, SettingValue, Settings, SettingsAnswer};
pub use shape::{Reshape, Shape, ShapeAnswer, ShapeChangeKind, ShapeRequest, ShapeWanted};
pub use status::{Status, Unheard};
pub use stop::{StopPlan, Stopped};
pub use top::{MemberRates, Rates, Top, TopArray};

/// The version of the API's values: that of the paths, `/v1`.
pub const VERSION: u32 = 1;
