"""Nouns, names and their short forms that say the same: each line is what stands for all, then the others."""

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
"""The table, in plain words."""
