"""Short compatible facts about one user and one project: no two of them conflict."""

from __future__ import annotations

from itertools import permutations

import pytest

from langmem_tiers.long_term.conflicts.comparison import Verdict, compare
from langmem_tiers.long_term.conflicts.statement import read_statement
from langmem_tiers.recall.embedders.vectors import WordSimilarity
from langmem_tiers.recall.embedders.wordllama_embedder import OfflineEmbedder

FACTS = """
The user lives in Lisbon
The user grew up in Porto
The user was born in 1988
The user's birthday is on August 14
The user is 38 years old
The user is 176 cm tall
The user weighs 72 kg
The user wears size 43 shoes
The user is left-handed
The user is near-sighted
The user is vegetarian
The user does not eat meat
The user is allergic to penicillin
The user is allergic to cats
The user has mild asthma
The user takes 10 mg of cetirizine a day
The user takes vitamin B12
The user is married to Helena
Helena is a violinist
Helena works at the opera
The user has a daughter named Clara
The user has a son named Tiago
Clara is seven years old
Clara goes to the German school
Clara plays the cello
Tiago is four years old
Tiago is afraid of dogs
The user's sister lives in Madrid
The user's sister has twins
The user's brother is a pilot
The user's father is retired
The user's father had a stroke in 2022
The user's mother is called Rosa
The user's mother teaches yoga
The user's best friend is Miguel
Miguel is a friend of Helena
The user has a tortoise called Speedy
The user does not have a dog
The user works as a data engineer
The user works for Galp
The user has worked at Galp since 2017
The user previously worked at Siemens
The user left Siemens in 2017
The user studied physics in Coimbra
The user graduated in 2011
The user wrote a thesis about solar cells
The user reports to Teresa
The user's team has nine people
The user mentors two interns
The user earns 3,900 euros a month
The user pays 1,150 euros in rent
The user's flat has four rooms
The user's flat is on the third floor
The user's flat has no balcony
The user's landlord is Mr. Pinto
The user's lease ends in June 2027
The user wants to buy a house
The user is saving up for a house
The user is looking for a bigger flat
The user bikes to work
The user's commute takes 25 minutes
The user works from home on Fridays
The user starts work at 8:30
The user goes to bed at 23:00
The user gets up at 6:45
The user sleeps badly when it is hot
The user drinks coffee in the morning
The user drinks tea in the evening
The user does not drink alcohol
The user never smokes
The user runs twice a week
The user goes climbing on Wednesdays
The user is training for a half marathon
The user plays chess online
The user plays the guitar
The user used to play the drums
The user sings in a choir
The choir meets on Thursdays
The choir has 30 members
The user collects old maps
The user reads science fiction
The user's favourite author is Ursula Le Guin
The user's favourite film is Arrival
The user's favourite dish is mushroom risotto
The user's favourite colour is dark green
The user likes jazz
The user likes hiking in the mountains
The user dislikes crowded places
The user hates phone calls
The user is afraid of flying
The user prefers trains to planes
The user prefers window seats
The user prefers short answers
The user prefers metric units
The user wants code examples in Python
The user speaks Portuguese and English
The user is learning German
The user's native language is Portuguese
The user drives an old Volvo
The user's car needs new tyres
The user's phone is a Pixel 8
The user uses a ThinkPad at work
The user uses Linux at home
The user takes notes in Obsidian
The user's editor is Neovim
The user's dentist is Dr. Alves
The user has a dentist appointment on May 9
The user's doctor is Dr. Santos
The user's passport expires in 2029
The user is planning a trip to Norway
The user's flight to Oslo is on July 3
The user's hotel in Oslo costs 140 euros a night
The budget for the trip is 2,500 euros
The user visited Japan in 2019
The user might move to Berlin
The user considers changing jobs
The user asked about parental leave
The user bought a new bicycle in March
The user sold the old bicycle
The user cancelled the newspaper subscription
The user subscribes to The Economist
The user banks with Millennium
The user's sister-in-law is a lawyer
The user volunteers at a food bank
The user gives blood every six months
The project is called Heron
The project is written in Rust
The project uses PostgreSQL
The project uses Redis for caching
The project uses Kafka for events
The project does not use MongoDB
The project runs on AWS
The project is hosted in Frankfurt
The project has twelve contributors
The project started in 2021
The project's licence is Apache 2.0
The repository is private
The default branch is called main
The frontend is written in TypeScript
The frontend uses React
The backend exposes a REST API
The API returns JSON
The API timeout is 30 seconds
The database timeout is 5 seconds
The rate limit is 100 requests per minute
Uploads are limited to 20 MB
Logs are kept for 14 days
Backups are kept for 90 days
Backups run at 02:00
Deployments happen on Tuesdays
Deployments must not happen on Fridays
Every pull request needs two approvals
Commits must be signed
Tests must pass before merging
Squash merges are preferred
Force pushes are forbidden
Secrets are stored in Vault
The staging server is at stage.heron.dev
The production server is at heron.dev
Staging is reset every night
The build takes eight minutes
The tests take four minutes
Test coverage is 84 percent
The linter is Clippy
The tech lead is Ines
The product owner is Jonas
The designer is Lena
Ravi maintains the parser
Ravi is on holiday until Monday
Ines reviews the migrations
Lena works part-time
The team meets on Mondays at 10:00
The team uses Slack
The team tracks issues in Linear
The sprint lasts two weeks
The deadline is October 15
The kickoff was on March 1
The release is planned for November
The budget is 80,000 euros
The client is Nordbank
The contract was signed in January
The login bug was fixed
The export bug is open
The search is slow
The search is case-sensitive
The docs are generated with mdBook
The docs are out of date
Dark mode is enabled by default
Telemetry is disabled by default
""".strip().splitlines()


@pytest.mark.soak
def test_compatible_profile_facts_do_not_conflict() -> None:
    assert len(FACTS) >= 150
    read = [read_statement(fact) for fact in FACTS]
    kin = WordSimilarity(OfflineEmbedder().embed_documents)
    touched = [
        (found.verdict, old.text, new.text, found.reason)
        for old, new in permutations(read, 2)
        if (found := compare(old, new, kin)).verdict is not Verdict.DIFFERENT
    ]
    assert touched == []
