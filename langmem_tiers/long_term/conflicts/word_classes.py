"""Tables of words that exclude each other: opposites, and classes of which only one member is possible."""

from __future__ import annotations

_STATES = """
enable/disable, allow/forbid, open/close, increase/decrease, active/inactive, true/false, on/off,
accept/reject, approve/reject, success/failure, succeed/fail, pass/fail, available/unavailable,
start/stop, online/offline, lock/unlock, hide/show, hidden/visible, valid/invalid, legal/illegal,
complete/incomplete, safe/unsafe, stable/unstable, secure/insecure, possible/impossible, include/exclude,
before/after, above/below, with/without, more/less, often/rarely, always/rarely, always/sometimes,
free/busy, mandatory/optional, need/optional, agree/disagree, like/dislike, trust/distrust, add/delete,
install/uninstall, connect/disconnect, alive/dead, asleep/awake, present/absent, full/empty, win/lose,
remember/forget, employed/unemployed, single/married, correct/wrong, finish/unfinished, known/unknown,
healthy/unhealthy, happy/unhappy, satisfied/dissatisfied, public/private, sync/async,
synchronous/asynchronous, synchronously/asynchronously, single/multiple, automatic/manual,
automatically/manually, strict/lenient, mutable/immutable, optimistic/pessimistic, verbose/quiet,
required/optional, encrypted/unencrypted, more than/less than, high/low, hot/cold, warm/cold, hot/iced,
fast/slow, early/late, earlier/later, big/small, short/long, short/detailed, short/verbose,
formal/informal, formal/casual, loud/quiet, strong/weak, strong/mild, spicy/mild, sweet/savory, sweet/dry,
hard/soft, firm/soft, thick/thin, wet/dry, rich/poor, young/old, cheap/expensive, easy/difficult,
simple/complex, dark/light, dark/bright, left/right, ascending/descending, increasing/decreasing,
horizontal/vertical, clockwise/counterclockwise, odd/even, local/remote, static/dynamic,
permanent/temporary, internal/external, heavy/light, black/white, indoor/outdoor, indoors/outdoors,
alone/together, monolith/microservice, monorepo/polyrepo, eager/lazy, remote/onsite, remote/office,
oldest/newest, introvert/extrovert, alphabetical/chronological, upper/lower, uppercase/lowercase,
best/worst, strict/relaxed, blocking/nonblocking, stateful/stateless, sunny/rainy, wide/narrow, near/far,
tall/short, smoker/nonsmoker, deny/allow, block/allow, keep/delete, store/delete, at least/at most,
full/part, readonly/writable, mandatory/voluntary, need/forbid, urban/rural, analog/digital,
expand/collapse, gain/lose, buy/sell, lend/borrow, eager/lazy, profit/loss, in parallel/sequentially,
upstairs/downstairs, optin/optout, parallel/sequential, rise/fall, morning person/night owl, top/bottom,
inside/outside, front/back, wired/wireless, paid/unpaid, paid/free, renew/expire,
refundable/nonrefundable, direct/indirect, digital/paper, import/export, push/pull, up/down,
vegan/carnivore, accept/refuse, pause/resume, stop/resume, clean/dirty, salty/bland,
curly/straight, comfortable/uncomfortable,
noisy/quiet, crowded/deserted, crowded/empty, boring/exciting, boring/fun, friendly/rude, polite/rude,
fresh/stale, sharp/blunt, bright/dim, deep/shallow, calm/nervous, relaxed/stressed, optimist/pessimist,
proud/ashamed, rough/smooth, tight/loose, heavy/lightweight, brave/timid, lazy/hardworking,
generous/stingy, messy/tidy, modern/outdated, popular/unpopular, useful/useless, helpful/useless,
patient/impatient, reliable/unreliable, ripe/unripe, solid/liquid, spacious/cramped, sweet/bitter,
sweet/sour, sweet/salty, tasty/disgusting, tense/relaxed, tolerant/intolerant, useful/pointless,
vague/precise, violent/peaceful, wild/tame, stable/flaky, flat/steep, frozen/fresh, nearby/far,
beginner/expert, cooked/raw, gains/loses, improve/worsen, better/worse, love/hate, expand/shrink,
grow/shrink, arrive/depart, cheap/pricey, electric/diesel, electric/petrol, active/expired, valid/expired,
single/girlfriend, single/boyfriend, single/wife, single/husband, single/engaged, single/partner,
urgent/unimportant, strength/weakness, majority/minority, renting/owning, rent/own, warm/cool,
deny/confirm, encourage/discourage, permit/prohibit, attract/repel, ahead/behind, minimum/maximum,
first/last, inner/outer
"""
_EITHER = """
pass/fail, open/close, open/closed, succeed/fail, available/unavailable, present/absent, alive/dead,
possible/impossible, legal/illegal, valid/invalid, agree/disagree, active/inactive, known/unknown,
remember/forget, awake/asleep, online/offline, complete/incomplete, include/exclude, employed/unemployed,
finished/unfinished, enabled/disabled, public/private, paid/unpaid, accept/reject, approve/reject, work/broken,
stay/leave, trust/distrust, safe/unsafe, locked/unlocked, visible/hidden, required/optional, true/false,
vacant/occupied, attend/skip, win/lose, keep/discard
"""
_CLASSES = """
database: postgresql mysql mariadb sqlite oracle mssql mongodb cassandra dynamodb cockroachdb couchdb
    db2 firestore firebird snowflake bigquery redshift clickhouse supabase neo4j
cache: redis memcached hazelcast valkey
cloud: aws gcp azure heroku digitalocean hetzner ovh linode cloudflare vercel netlify railway render
frontend framework: react vuejs angular svelte solidjs ember preact qwik
web framework: django flask fastapi rails laravel express nestjs spring koa gin echo phoenix sinatra
language: python javascript typescript java golang go rust ruby php kotlin swift scala elixir c# c++ c
    haskell perl r julia dart clojure lua erlang zig
package manager: npm yarn pnpm bun pip poetry uv conda pipenv pdm
editor: vscode vim neovim emacs sublime intellij pycharm webstorm atom zed nano helix cursor
ci: github_actions gitlab_ci azure_devops jenkins circleci travis gitlab github buildkite teamcity drone
    bamboo
license: mit apache gpl bsd mpl agpl lgpl proprietary
operating system: linux windows macos ubuntu debian fedora arch
linter: ruff flake8 pylint eslint biome tslint
formatter: black prettier yapf autopep8
test framework: pytest unittest nose jest mocha vitest jasmine
queue: kafka rabbitmq sqs nats activemq pulsar celery
search engine: elasticsearch opensearch solr meilisearch typesense algolia
vector store: pinecone weaviate qdrant chroma milvus faiss pgvector
orchestrator: kubernetes nomad swarm ecs
provisioning: terraform pulumi cloudformation ansible chef puppet
version control: git mercurial svn subversion perforce
shell: bash zsh fish powershell
browser: chrome firefox safari edge brave opera
protocol: rest graphql grpc soap websocket
format: json yaml xml toml csv parquet avro protobuf
styling: tailwind bootstrap bulma sass
bundler: webpack vite rollup parcel esbuild turbopack
state library: redux mobx zustand recoil pinia vuex
orm: sqlalchemy prisma drizzle typeorm sequelize hibernate peewee
authentication: oauth saml ldap jwt auth0 keycloak okta cognito
monitoring: datadog prometheus newrelic grafana sentry splunk
tracker: jira linear asana trello notion monday clickup
chat: slack msteams teams discord mattermost telegram whatsapp signal
call: zoom webex skype facetime
hosting: github gitlab bitbucket gitea
phone: iphone android pixel
color: red blue green yellow black white gray purple orange pink brown beige navy teal turquoise silver
    gold violet
indentation: tab space
quotes: single double
branch model: trunk gitflow
merge: squash rebase merge
seat: window aisle middle
drink: coffee tea water juice beer wine soda milk espresso cola
hot drink: coffee tea cocoa
meat: chicken beef pork fish lamb turkey tofu
pet: dog cat
diet: vegan vegetarian pescatarian omnivore carnivore keto
transport: train plane bus car bicycle airplane subway tram taxi ferry foot walk
daytime: morning afternoon evening night noon midday
weekday: monday tuesday wednesday thursday friday saturday sunday weekend
marital: single married divorced widowed engaged
status: open closed pending resolved merged blocked active archived draft approved rejected shipped
    delivered completed cancelled paused running stopped failed passed done started
priority: low medium high critical urgent
size: small medium large xs xl xxl s m l
temperature unit: celsius fahrenheit
units: metric imperial
season: spring summer autumn fall winter
gender: male female
hand: lefthanded righthanded
frequency: daily weekly monthly yearly hourly nightly quarterly biweekly fortnightly
channel: email phone slack sms chat mail text call
room: kitchen bedroom bathroom
work place: home office remotely remote onsite hybrid
case: camelcase snakecase kebabcase pascalcase
level: beginner intermediate advanced expert
book form: paperback hardcover ebook audiobook kindle
milk: oat soy almond dairy whole skimmed
steak: rare medium welldone
eggs: scrambled poached fried boiled
fuel: diesel petrol gasoline electric hybrid hydrogen
heating: gas oil electric pellet
notes app: notion obsidian evernote onenote roam logseq
word processor: word latex pages
english: british american
sport: soccer tennis basketball swimming running
mobile framework: flutter swiftui reactnative xamarin ionic kotlin swift
data frames: pandas polars spark dask
warehouse: snowflake bigquery redshift databricks
model: gpt-4 gpt-4o claude gemini llama mistral
ai vendor: openai anthropic google mistral cohere
docs generator: sphinx mkdocs docusaurus
cms: wordpress drupal contentful strapi sanity
browser tests: cypress playwright selenium puppeteer
web server: nginx apache caddy traefik haproxy
scheduler: airflow prefect dagster luigi
payment provider: stripe adyen paypal braintree square
mail provider: sendgrid mailgun ses postmark resend
design tool: figma sketch xd
object storage: s3 gcs minio
container: docker podman
game engine: unity unreal godot
deep learning: pytorch tensorflow jax keras
music: spotify tidal deezer
maps: google apple
payment: cash card credit debit paypal
"""
_SCOPES = """
staging production development test testing qa dev frontend backend client server mobile desktop web ios
android eu us usa europe asia america weekday weekend v1 v2 v3 internal external local remote summer winter
admin administrator guest child kid adult intern customer employee free premium enterprise pro international
domestic north south east west holiday night day morning evening q1 q2 q3 q4 monthly yearly weekly daily
read write upload download inbound outbound home office beta alpha stable nightly primary secondary master
replica windows linux macos
"""
_REGIONS = """
germany france spain italy portugal switzerland austria poland netherlands belgium denmark sweden norway
finland ireland uk england scotland wales usa canada mexico brazil argentina chile peru colombia japan china
india korea vietnam thailand indonesia malaysia singapore philippines australia egypt morocco kenya nigeria
ghana ethiopia israel turkey greece hungary romania bulgaria croatia serbia slovenia slovakia ukraine russia
czechia iceland estonia latvia lithuania pakistan bangladesh nepal iran iraq europe asia africa california
texas florida bavaria ontario queensland scandinavia eu us america oregon washington colorado nevada ohio
illinois massachusetts georgia virginia quebec
"""


def _parse_pairs(table: str) -> frozenset[tuple[str, str]]:
    found = set()
    for pair in table.replace("\n", " ").split(","):
        one, _, other = pair.strip().partition("/")
        found |= {(one, other), (other, one)}
    return frozenset(found)


def _parse_members(table: str) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for line in table.replace("\n    ", " ").strip().splitlines():
        name, _, members = line.partition(":")
        for member in members.split():
            found.setdefault(member.replace("_", " "), set()).add(name)
    return {member: frozenset(names) for member, names in found.items()}


COMPLEMENTS = _parse_pairs(_EITHER)
"""Opposites without anything in between."""
OPPOSITES = _parse_pairs(_STATES) | COMPLEMENTS
"""Pairs of opposite words, in both orders."""
CLASSES = _parse_members(_CLASSES)
"""Names of the classes that a word belongs to."""
SCOPES = frozenset(_SCOPES.split())
"""Words that limit a statement to a place or group. It need not be valid for another place or group."""
REGIONS = frozenset(_REGIONS.split())
"""Countries and other regions that contain places."""
