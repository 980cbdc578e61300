"""The application of the comparison: one handler, bare or behind an in-application middleware.

With DATABASE set, `fastapi-idempotency` guards it, on that PostgreSQL; with REDIS set, `idemkit`, on that
Redis. Run by `fencepost-bench peers`.
"""

import os
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Route

DATABASE = os.environ.get("DATABASE")
REDIS = os.environ.get("REDIS")


async def pay(request):
    await request.json()
    return JSONResponse({"paid": True, "note": "x" * 900}, status_code=201)


@asynccontextmanager
async def lifespan(_app):
    if DATABASE:
        from tortoise import Tortoise

        models = {"models": ["fastapi_idempotency.stores.tortoise"]}
        # Without the global switch a request's task would not see what the start-up task made.
        await Tortoise.init(db_url=DATABASE, modules=models, _enable_global_fallback=True)
        await Tortoise.generate_schemas()
    yield


middleware = []
if DATABASE:
    from fastapi_idempotency import IdempotencyMiddleware
    from fastapi_idempotency.stores.tortoise import TortoiseStore

    middleware.append(Middleware(IdempotencyMiddleware, store=TortoiseStore()))

if REDIS:
    from idemkit import IdempotencyMiddleware
    from idemkit.backends.redis import RedisBackend

    middleware.append(Middleware(IdempotencyMiddleware, backend=RedisBackend.from_url(REDIS)))

app = Starlette(routes=[Route("/pay", pay, methods=["POST"])], middleware=middleware, lifespan=lifespan)
