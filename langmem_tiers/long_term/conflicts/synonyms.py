"""Synonyms. Each line lists the canonical word first, then the words and phrases with the same meaning.

Words are written in base form and match in any inflection. Phrases are matched before single words. Only words that
are interchangeable in nearly every sentence belong here.
"""

from __future__ import annotations

NOUNS = """
utc: coordinated universal time
petrol: gasoline, gas station fuel
welldone: well done
deadline: due date, due, cutoff date, cut off date, submission date
maximum: max, upper limit, upper bound
minimum: min, lower limit, lower bound
limit: cap
manager: boss, supervisor, mgr
colleague: coworker, co worker, workmate
flat: apartment, apt
holiday: vacation
movie: film
phone: telephone, mobile phone, cellphone, cell phone, smartphone, mobile, cell
car: automobile
doctor: physician
medicine: medication
kid: child
mother: mom, mommy
father: dad, daddy
job: occupation, profession
company: firm, employer
folder: directory, dir
picture: photo, photograph, pic
email: e mail, electronic mail, email address
database: db, datastore, data store, data base
application: app
configuration: config, conf, cfg
repository: repo
environment: env
production: prod
development: dev
authentication: auth, authn
authorization: authz
kubernetes: k8s, kube
postgresql: postgres, postgre sql, psql, pg
javascript: js, java script
typescript: ts, type script
python: py
nodejs: node js, node.js
nextjs: next js, next.js
vuejs: vue, vue.js, vue js
react: react.js, reactjs, react js
golang: go lang, go language, go programming language
mongodb: mongo, mongo db
elasticsearch: elastic search
vscode: vs code, visual studio code
aws: amazon web services
gcp: google cloud, google cloud platform
github: gh, git hub
gitlab: git lab
msteams: ms teams, microsoft teams
documentation: docs, doc
information: info
specification: spec
administrator: admin
performance: perf
infrastructure: infra
message: msg
package: pkg
library: lib
function: func
parameter: param
variable: var
dependency: dep
certificate: cert
organization: org
department: dept
university: uni
laboratory: lab
advertisement: ad, advert
statistic: stat
ml: machine learning
ai: artificial intelligence
llm: large language model
ui: user interface
pr: pull request
mr: merge request
os: operating system
vm: virtual machine
ci: continuous integration
tv: television
nyc: new york city, new york
sf: san francisco
uk: united kingdom
usa: united states, united states of america
eu: european union
birthday: bday
tuesday: tue, tues
monday: mon
wednesday: wed, weds
thursday: thu, thur, thurs
friday: fri
saturday: sat
sunday: sun
frontend: front end
backend: back end
fullstack: full stack
setup: set up
login: log in, sign in, logon
signup: sign up
online: on line
timezone: time zone
codebase: code base
username: user name
filename: file name
website: web site
weekend: week end
salary: wage, pay rate
goal: aim, objective
partner: significant other
trip: journey
dinner: supper
dish: meal
supermarket: grocery store
hometown: home town
flatmate: roommate, housemate
gym: fitness studio, fitness center
bicycle: bike
refrigerator: fridge
airplane: plane
backup: back up
nickname: nick name
birthplace: place of birth
allergy: allergic, have an allergy
lead: leader
programmer: coder
lawyer: attorney
reactnative: react native
kafka: apache kafka
taxi: cab
gasoline: petrol
truck: lorry
sweater: jumper
diaper: nappy
mail: post
timetable: time table
postcode: zip code, postal code, zip
pharmacy: drugstore, drug store
basement: cellar
garden: yard, backyard, back yard
rug: carpet
student: pupil
teacher: instructor
cookie: biscuit
headquarters: hq, head office
teammate: team mate, team member
newsletter: news letter
temperature: temp
language: lang, programming language
management: mgmt
memory: ram, mem
building: bldg
government: govt, gov
representative: rep
executive: exec
pc: personal computer
mvp: minimum viable product
poc: proof of concept
rfc: request for comments
eod: end of day
sre: site reliability engineering
dba: database administrator
swe: software engineer
ux: user experience
orm: object relational mapper
spa: single page application
er: emergency room
roi: return on investment
dns: domain name system
saas: software as a service
home: residence
number: num
favorite: fav
appointment: appt
hr: human resources
ceo: chief executive officer
cto: chief technology officer
cfo: chief financial officer
vp: vice president
pm: product manager
qa: quality assurance
sso: single sign on
2fa: 2 factor authentication, 2 factor auth, 2 fa, 2 factor
optin: opt in
optout: opt out
checkin: check in
checkout: check out
mfa: multi factor authentication, multifactor authentication
cdn: content delivery network
sla: service level agreement
eta: estimated time of arrival
pto: paid time off
wfh: work from home, working from home
id: identifier
cli: command line interface, command line, command line tool
gui: graphical user interface
sdk: software development kit
jwt: json web token
regex: regular expression, regexp
async: asynchronous
sync: synchronous
quantity: qty
average: avg
street: st
avenue: ave
professor: prof
medicine: meds
veterinarian: vet
video: vid
operations: ops
engineering: eng
marketing: mktg
business: biz
account: acct
address: addr
password: pw, pwd, passwd
credential: cred
implementation: impl
architecture: arch
version: ver
reference: ref
image: img
background: bg
preferences: prefs
nlp: natural language processing
csharp: c#, c sharp
cpp: c++, c plus plus
dotnet: .net, dot net
terraform: tf
github actions: gh actions, gha
rabbitmq: rabbit mq
vpn: virtual private network
faq: frequently asked questions
q1: #1 quarter, 1 quarter
q2: #2 quarter, second quarter
q3: #3 quarter
q4: #4 quarter
la: los angeles
uae: united arab emirates
bp: blood pressure
gp: general practitioner
ac: air conditioning, air conditioner
percent: per cent
glasses: spectacles, eyeglasses
trousers: pants
bathroom: restroom
sofa: couch
garbage: trash, rubbish
subway: metro, tube
parking lot: car park
elevator: lift
cinema: movie theater
grandma: grandmother, granny
grandpa: grandfather, granddad
deploy: deployment
install: installation
arrive: arrival
subscribe: subscription
recommend: recommendation
approve: approval
migrate: migration
pay: payment
request: req
employee: staff member
problem: issue
error: err
"""
"""Table of nouns, in base form."""


_VERBS = """
choose: select, pick, decide on, go with, opt for, settle on, go for, decide to use, choose to use,
    decide to go with, decide to adopt, decide to choose, decide upon, agree on, agree to use, decision,
    choice, selection, adopt, make a decision to use, decide in favor of, decide for, make a choice, pick
    out, settle for, elect to use, the choice fall on, choose to go with, decision make to use, decision be
    to use, decide we use, opt to use, agree to go with, standardize on, settle upon, decision be, decide
    that we use, decide we will use, decide to go for, make the choice
prefer: favor, preference, like better, would rather have, like best, like more, would rather, have a
    preference for
like: love, fan of, fond of, keen on, enjoy, adore, be fond of, be a fan of, be keen on, be a big fan
    of, take pleasure in, be a lover of, be into, be very fond of, have a liking for
dislike: hate, detest, loathe, can not stand, despise, be averse to
use: run on, be on, utilize, make use of, employ, leverage
start: begin, commence, kick off, get start, kickoff
end: finish, complete, conclude, wrap up, terminate, be over
buy: purchase, acquire
need: require, mandatory, necessary, compulsory, obligatory, be in need of, requirement, obligation,
    call for, be essential, essential
want: would like, wish, desire, would love, would prefer to have
seek: look for, search for, hunt for, be on the lookout for, be in search of
die: pass away, decease, lose one life
save up: put money aside, set money aside, put aside money, put aside, set aside
grow up: spend childhood, spend youth, be bring up
date: go out with, be in a relationship with, be together with
live: reside, dwell, make one home, be living
locate: situate, be base in, base, headquarter
work: be employ, have a job, be working, have a job, hold a job
delete: remove, erase, eliminate, take out, wipe
fix: repair, mend, resolve, patch
show: display, demonstrate, exhibit
store: persist, keep, retain, save
run: execute
check: verify, double check
own: consist of, be compose of, be make up of, comprise, possess, have got, have, be the owner of, have in
    possession, be in possession of
name: want to be call, prefer to be call, like to be call, call, go by, know as, be know as
birthday: bear, date of birth, birth date, birthdate, dob
marry: wed, be marry to, get marry, tie the knot with
cancel: call off, scrap
postpone: delay, push back, put off, defer, reschedule to later
increase: raise, go up, bump up, bump, boost, rise
decrease: reduce, lower, cut down, bring down, cut, go down
enable: activate, turn on, switch on
disable: deactivate, turn off, switch off
allow: permit, authorize, let, be okay to, be fine to
forbid: prohibit, ban, disallow
reject: decline, refuse, turn down
approve: sign off on, sign off, greenlight
change: alter, modify, adjust, amend
release: publish, ship, come out
deploy: roll out
contact: reach out to, get in touch with
attend: take part in, participate in, go along to
avoid: steer clear of, stay away from
ask: inquire
answer: reply, respond, response
happen: occur, take place, be schedule for, be schedule, be plan for, be hold, schedule, be set for, be
    due to take place, be schedule to take place, be take place, be hold, go ahead
wake: get up, wake up
stop: quit, cease, give up
talk: speak to, speak with, chat, converse
help: assist, aid
explain: clarify, describe
gather: collect
get: obtain, receive, fetch
move: relocate
migrate: switch over, transition
switch: change over
write: author
teach: instruct
seem: appear, look like
consume: ingest
visit: pay a visit to, go to see, stop by
belong: be a member of, be member of
join: become a member of
exercise: work out
retire: go into retirement
responsible: in charge of, responsible for
depend: rely, dependent
cost: be price at, price, go for the price of
weigh: have a weight of
build: construct
repeat: redo, do again
travel: journey, take a trip
leave: depart, head off, set off, take off
try: attempt
stay: remain
close: shut
discuss: talk about
arrive: get in, get there
return: come back, go back, get back, send back, give back, bring back, take back
clear: clear out, empty out, clean out
suffer: suffer from, be plague by, struggle with
abstain: abstain from, stay off, refrain from, stay clear of
walk: go on foot, go by foot
cycle: bike, go by bike, go by bicycle, ride a bike, ride a bicycle
commute: travel to work, get to work, go to work
replace: swap out, swap, exchange, trade in, substitute, supersede
abandon: get rid of, ditch, give away, donate, phase out, drop support for, get off, sunset, forgo, move away from,
    migrate away from, migrate off, move off, walk away from
resign: step down, hand in notice
divorce: split up with, break up with, separate from, split up, break up, break off, part way
hire: recruit, take on, bring on board
fire: lay off, dismiss, let go
sleep: go to bed, go to sleep
prepare: get ready
organize: arrange
supply: provide, deliver to
oversee: supervise, be head of
commit: check in
notify: inform, let know, alert
decide: make up one mind
produce: manufacture
reach: get to
total: amount to, come to, add up to
rent: lease
vomit: throw up
handle: deal with, be responsible for, be in charge of, be responsible
care: take care of, look after, care for, mind
trigger: cause, lead to, result in
ensure: guarantee
"""
_OTHERS = """
big: large, huge
small: little, tiny
fast: quick, rapid, speedy, quickly, rapidly
slow: slowly
short: brief, concise, succinct, terse
long: lengthy
detailed: thorough, in depth, indepth, detail
important: crucial, vital, significant
difficult: hard, tough
easy: simple
wrong: incorrect
happy: glad
ill: sick, unwell
cheap: inexpensive, low cost
expensive: costly, pricey
daily: every day, each day, per day, once a day, everyday
weekly: every week, each week, per week, once a week
monthly: every month, each month, per month, once a month
yearly: every year, each year, per year, once a year, annually, annual
hourly: every hour, each hour, per hour, once an hour
nightly: every night, each night, per night
always: every time, all the time, at all times, constantly, in all cases, without exception
often: frequently
alternate: every other, every second
sometimes: occasionally, from time to time, now and then
rarely: seldom
before: prior to, ahead of, earlier than
after: later than, subsequent to
until: till, up until
via: by means of, through
because: due to, because of, owing to, since it, as it, on account of
without: w o, free of
all: every, each, everyone, everybody, every one of
and: as well as, together with, along with, plus
but: however, although, though
instead of: rather than, in place of, in lieu of, as opposed to, in preference to
no longer: not any more, not anymore, any longer
except: apart from, other than, aside from, with the exception of
favorite: fave, most liked
main: primary, principal
default: by default
asap: as soon as possible, immediately, right away
at least: no less than, no fewer than, not less than, a minimum of, minimum of, or more, at minimum
at most: up to, no more than, not more than, a maximum of, maximum of, or less, or fewer, at maximum,
    not exceed
more than: in excess of, greater than, exceed
less than: fewer than, smaller than
about: approximately, approx, roughly, circa, nearly, almost, more or less, somewhere around
must: have to, need to, be required to, have got to, be obliged to, be necessary to, be mandatory to,
    shall
should: ought to, be supposed to
can: be able to, be capable of, could
might: maybe, perhaps, possibly, could be, potentially, probably, likely, be likely to
will: be going to, gonna

enough: sufficient
many: numerous, lots of, a lot of, plenty of
additional: extra
previous: prior, former, earlier
tasty: delicious
loud: noisy
afraid: scared, frightened, be terrified
cold: chilly
neat: tidy
boring: dull
broken: out of order
fluent: fluently
angry: mad
tired: exhausted
smart: clever, intelligent
quiet: silent
rich: wealthy
new: brand new
weekly: on a weekly basis, once weekly
daily: on a daily basis, once daily, day to day
monthly: on a monthly basis, once monthly
for: in favor of
sequentially: in sequence, one after another, serially
in parallel: concurrently, simultaneously, at the same time
vegetarian: veggie
vegan: plant based
near: close to, next to, nearby
regularly: on a regular basis
alone: by herself, by himself, by myself, by themselves, by oneself, on ones own
different: distinct
similar: alike
remote: remotely, from home
manual: manually, by hand
automatic: automatically
"""


def parse_synonym_table(table: str) -> dict[str, str]:
    """Return the canonical word of each word or phrase in a table. An indented line continues the line before it."""
    found: dict[str, str] = {}
    for line in table.replace("\n    ", " ").strip().splitlines():
        canonical, _, others = line.partition(":")
        for other in (canonical, *others.split(",")):
            found.setdefault(" ".join(other.split()), canonical.strip())
    return found


SYNONYMS = parse_synonym_table(_VERBS) | parse_synonym_table(NOUNS) | parse_synonym_table(_OTHERS)
"""Canonical word of each word or phrase."""
VERB_KEYS = frozenset(parse_synonym_table(_VERBS).values()) - {"birthday", "name", "date"}
"""Canonical words of verbs."""
