"""Builds tasks: calls that outlive the connection of their client."""

from collections.abc import Awaitable, Callable

from gateway.catalogue.catalogue import Catalogue
from gateway.contract import Bus, Call, Caller, Json, ListChange, Route
from gateway.policy.decisions import Authorizer
from gateway.protocol.sealed_tokens import SealedCursorCodec, TokenSeal
from gateway.protocol.subscriptions import Subscriptions
from gateway.protocol.worker_events import WorkerEvents
from gateway.settings import Settings
from gateway.stages.authorize import authorize_task
from gateway.state.database import Database
from gateway.state.task_rows import TaskQuota, TaskRows
from gateway.tasks.calls import TaskCalls
from gateway.tasks.content import TaskContent
from gateway.tasks.events import TaskEvents
from gateway.tasks.ids import TaskIds
from gateway.tasks.requests import TaskRequests
from gateway.tasks.running import TaskLimits, TaskService
from gateway.tasks.supervisor import HeldTasks, TaskSupervisor
from gateway.tasks.upstream_tasks import UpstreamTasks
from gateway.wiring.call_path import CallPaths


class Tasks:
    """The handlers of calls and of requests about tasks, and what keeps tasks running."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        seal: TokenSeal,
        bus: Bus,
        catalogue: Catalogue,
        authorizer: Authorizer,
        paths: CallPaths,
        subscriptions: Subscriptions,
        worker_events: WorkerEvents,
        is_authorized: Callable[[Caller], Awaitable[bool]],
    ) -> None:
        self._catalogue = catalogue
        self._subscriptions = subscriptions
        self._worker_events = worker_events
        self._ids = TaskIds(seal)
        self.rows = TaskRows(database)
        section = settings.tasks
        quota = TaskQuota(section.per_principal, section.per_tenant, section.bytes_per_tenant)
        limits = TaskLimits(section.after, section.deadline, section.ttl, quota)
        service = TaskService(self.rows, self._ids, TaskContent(seal), limits, bus.worker, self._announce)
        self.running = service.running
        """The tasks that run in this worker."""
        upstream = UpstreamTasks(service, paths.guard, bus, self._find_route)
        self.follow = upstream.follow
        self._calls = TaskCalls(service, upstream, paths.full, paths.refusal, self._find_route)
        self.call_handler = self._calls
        self.supervisor = TaskSupervisor(service, self._calls.resume, is_authorized, worker_events.publish)
        worker_events.subscribe("tasks", self.supervisor.on_peer_event)
        self.held = HeldTasks(service, self.supervisor.wake)
        """For stages that let a call wait for a person."""
        events = TaskEvents()
        subscriptions.observe(events.on_change)
        requests = TaskRequests(
            service,
            upstream,
            events,
            SealedCursorCodec(seal),
            authorize_task(authorizer.decide),
            self.supervisor.wake,
            self._find_route,
        )
        self.request_handler = paths.tasks(requests)

    def open_task_id(self, caller: Caller, params: Json) -> str | None:
        """Return the canonical id of the tool of the task that the params name; None if the caller has no such task."""
        id = params.get("taskId")
        reference = self._ids.open(caller.principal, id) if isinstance(id, str) else None
        return reference.tool if reference is not None else None

    async def close(self) -> None:
        """Stop the tasks of this worker: other replicas take them over."""
        await self._calls.close()

    def _find_route(self, call: Call) -> Route | None:
        view = self._catalogue.view(call.caller, call.endpoint)
        return view.tools.get(call.params["name"]) if view is not None else None

    async def _announce(self, namespace: str, change: ListChange) -> None:
        self._subscriptions.publish(namespace, change)
        await self._worker_events.publish("change", {"namespace": namespace, "change": list(change)})
