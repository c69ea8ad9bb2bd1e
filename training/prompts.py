"""Prompts to train on: templates over many topics, and openings that the target itself continues.

Those that measurements use (assets/prompts and tests/fixtures/heldout.jsonl) are left out. What the
target makes of an opening is known only to `collect`, which compares it with them (`--apart`).

usage: prompts.py COUNT [--seed 1] > prompts.jsonl

A line is what `collect` reads: `user`, and where it is not the usual `system`, `imagine`, `turns`
and `temperature`.
"""
import argparse
import json
import pathlib
import random


def split(text):
    return [part.strip() for part in " ".join(text.split()).split("|")]


TOPICS = split("""
photosynthesis|black holes|the French Revolution|machine learning|how bread rises|volcanoes|the
human heart|climate change|the stock market|chess openings|ancient Egypt|the Roman Empire|coffee
brewing|yoga|meditation|gardening in small spaces|the water cycle|electric cars|solar panels|the
internet|cloud computing|databases|cybersecurity|renewable energy|coral reefs|rainforests|penguins|
elephants|honey bees|dinosaurs|the solar system|Mars exploration|the Moon landing|gravity|
relativity|quantum mechanics|DNA|vaccines|the immune system|nutrition|sleep|running a marathon|
strength training|swimming|football tactics|basketball|jazz music|classical music|learning the
guitar|oil painting|photography|creative writing|poetry|public speaking|job interviews|time
management|personal budgeting|saving for retirement|starting a small business|marketing on social
media|remote work|team leadership|conflict resolution|parenting toddlers|dog training|cat behaviour|
travelling in Japan|visiting Paris|camping|hiking safety|cooking pasta|baking sourdough|vegan
recipes|Indian cuisine|Mexican street food|wine tasting|the history of tea|fashion trends|interior
design|home repairs|woodworking|knitting|recycling|urban planning|public transport|the United
Nations|democracy|human rights|the Industrial Revolution|World War II|the Cold War|the Renaissance|
Greek mythology|Norse mythology|Shakespeare|science fiction novels|film making|video game design|
robotics|3D printing|blockchain|artificial intelligence ethics|smartphones|satellites|bridges|
skyscrapers|earthquakes|hurricanes|deserts|oceans|glaciers|magnetism|sound waves|light and colour|
chemical reactions|the periodic table|plastics|metals|algebra|geometry|probability|statistics|prime
numbers|the history of mathematics|language learning|Spanish grammar|philosophy|psychology|memory|
motivation|happiness|friendship|stress relief|first aid|dental health|allergies|diabetes|exercise
for seniors|school bullying|online education|libraries|museums|volunteering|wildlife conservation|
ocean pollution|air quality|water scarcity|organic farming|beekeeping|birdwatching|astronomy for
beginners|weather forecasting|map reading|sailing|aviation|railways|bicycles|car maintenance|tides|
thunderstorms|caves|rivers|mountains|islands|spiders|ants|wolves|bears|horses|parrots|sharks|frogs|
mushrooms|trees|roses|vitamins|protein|breakfast|fruit and vegetables|chocolate|cheese|salads|soups|
cakes|barbecues|table manners|packing for a trip|airports|hotels|trains in Europe|road trips|the
Great Wall of China|the pyramids|castles|pirates|knights|the Vikings|the Silk Road|the printing
press|the steam engine|the telephone|the light bulb|vaccination|antibiotics|blood|bones|the lungs|
the brain|the eyes|dreams|colds and flu|headaches|back pain|posture|walking|stretching|table tennis|
chess|board games|puzzles|magic tricks|juggling|dancing|the violin|drums|opera|rock music|painting
with watercolours|sculpture|architecture|novels|biographies|fairy tales|newspapers|advertising|
customer service|negotiation|meetings|writing emails|resumes|cover letters|studying for exams|taking
notes|homework|reading faster|learning to swim|house plants|composting|cleaning the kitchen|laundry|
saving energy at home|insurance|taxes|inflation|interest rates|credit cards|mortgages|investing|
supply and demand|elections|laws|courts|the European Union|money|globalization|poverty|refugees|
charity|kindness|honesty|courage|patience|gratitude|loneliness|anger|habits|procrastination|goal
setting|decision making|critical thinking|logic|fractions|percentages|geometry in art|triangles|
circles|the metric system|calendars|clocks|maps|compasses|telescopes|microscopes|lasers|batteries|
electricity|radio|computers|keyboards|operating systems|search engines|passwords|email|video calls|
podcasts|drones|self-driving cars|space stations|comets|galaxies|the Sun|atoms|water|ice|fire|salt|
gold|paper|glass|wood|cotton
""")
ABOUT = split("""
What is {t}?|Can you explain {t} in simple terms?|Why is {t} important?|Give me five interesting
facts about {t}.|What should a beginner know about {t}?|Write a short introduction to {t}.|List
three advantages and three disadvantages of {t}.|How has {t} changed over time?|Tell me about {t} as
if I were ten years old.|What are common misconceptions about {t}?|Write a short paragraph about
{t}.|I want to learn about {t}. Where should I start?|Make a numbered list of tips related to {t}.|
Write an email to a friend about {t}.|Write a short story about {t}.|Write a poem about {t}.|Create
a quiz with three questions about {t}.|What are the main challenges in {t}?|Suggest a title and
outline for an essay on {t}.|Write a dialogue between a teacher and a student about {t}.|How can I
use {t} in my daily life?|What does the future hold for {t}?|Write a persuasive speech about {t}.|
Compare {t} with {u}.|Explain the connection between {t} and {u}.|Write a product description
related to {t}.|Give me a step-by-step guide about {t}.|Summarize the key ideas of {t} in two
sentences.|Who are famous people connected with {t}?|Write a social media post about {t}.|How does
{t} work?|What causes problems with {t}?|Describe {t} in one paragraph.|Explain {t} to someone who
has never heard of it.|What are the benefits of {t}?|What are the risks of {t}?|Give me three tips
about {t}.|What is the difference between {t} and {u}?|Write a limerick about {t}.|What are the most
important facts about {t}?|Why do people like {t}?|How can I get better at {t}?|What is a good first
step with {t}?|Give me a short history of {t}.|Write a blog post about {t}.|List five words related
to {t} and explain them.|What would happen without {t}?|Is {t} good or bad? Explain.|Write a
thank-you note that mentions {t}.|What books or films are there about {t}?|Write a scene in which
two friends argue about {t}.|Describe {t} with all five senses.
""")
NAMES = split("""
Anna|Ben|Carla|David|Emma|Farid|Grace|Hugo|Ivy|James|Kira|Liam|Maya|Noah|Olga|Priya|Quinn|Rosa|Sam|Tina|Victor|Wendy|Yusuf|Zoe
""")
THINGS = split("""
apples|books|marbles|pencils|stickers|cookies|coins|toy
cars|balloons|flowers|oranges|cards|eggs|candles|tickets
""")
TASKS = split("""
checks if a number is prime|computes the factorial of a number|returns the nth Fibonacci number|
sorts a list of numbers|removes duplicates from a list|counts the vowels in a string|checks if a
string is a palindrome|finds the maximum value in a list|merges two sorted lists|computes the sum of
a list|converts Celsius to Fahrenheit|reads a text file and counts the words|parses a CSV file|finds
the greatest common divisor of two numbers|implements binary search|implements bubble sort|
implements quick sort|implements a stack|implements a queue|reverses a linked list|counts the
frequency of each word|flattens a nested list|computes the average of a list|filters even numbers|
generates a random password|validates an email address|computes the area of a circle|checks whether
a year is a leap year|prints a multiplication table|finds the second largest element|rotates a list
by k positions|transposes a matrix|multiplies two matrices|finds common elements of two lists|
capitalizes every word of a sentence|converts a decimal number to binary|computes the power of a
number|finds all prime numbers up to n|checks if two strings are anagrams|removes whitespace from a
string|calculates compound interest|simulates rolling a dice|implements a simple calculator|fetches
a web page|writes a dictionary to a JSON file|finds the longest word in a sentence|counts lines in a
file|splits a list into chunks|computes the Hamming distance of two strings|implements depth-first
search|implements breadth-first search|computes the median of a list|inserts an element into a
sorted list|deletes a key from a dictionary|inverts a dictionary|groups words by their first letter|
counts how many numbers of a list are negative|returns the index of an element or -1|computes the
factorials of all numbers up to n|prints a triangle of stars|prints the numbers from 10 down to 1|
asks the user for a name and greets them|guesses a secret number|converts miles to kilometers|
converts seconds to hours, minutes and seconds|converts a binary string to a number|converts a
string to title case|replaces all spaces with underscores|reverses the digits of a number|computes
the absolute difference of two numbers|checks if a number is even or odd|checks if a string contains
only digits|checks if a string has unique characters|checks if two lists are equal|checks if a
triangle is right-angled|solves a quadratic equation|computes the distance between two points|
computes the volume of a sphere|computes the body mass index|computes the standard deviation of a
list|finds the mode of a list|finds the minimum and the maximum of an array|finds the longest
increasing run in a list|finds the first non-repeating character of a string|finds all pairs of
numbers with a given sum|finds all divisors of a number|finds the shortest path in a graph|generates
the Pascal triangle|generates all permutations of a string|generates all subsets of a set|generates
a list of random integers|implements insertion sort|implements merge sort|implements a binary tree|
implements a linked list|implements a hash table|implements a priority queue|implements a to-do
list|implements a timer|implements tic-tac-toe|implements a Caesar cipher|implements linear search|
encodes a string with run-length encoding|parses a date in the format YYYY-MM-DD|prints the current
date and time|computes the number of days between two dates|downloads a file|sends an HTTP request
and prints the response|reads a JSON file|writes a list of lines to a file|appends a line to a log
file|lists all files with a given extension|copies a file|renames a file|counts the words of each
length in a text|draws a rectangle of characters|formats a number with two decimals|shuffles a deck
of cards|deals five cards|stores contacts with names and phone numbers|represents a student with a
name and grades|represents a rectangle with width and height|represents a book in a library|
represents a shopping cart|represents a car with speed and fuel|represents a point with coordinates|
represents an employee with a salary|connects to a database and lists a table|joins two tables|
updates the price of a product|logs in a user with a password|hashes a password|retries a failing
operation|caches the results of a slow function|runs two tasks in parallel|reads command line
arguments|validates a phone number|masks all but the last four digits of a card number|computes a
discount|computes the tip for a bill|computes the tax of an income|prints a calendar of a month|
plays rock, paper, scissors|converts text to Morse code|capitalizes the first letter of a string|
truncates a long string|pads a string with zeros|joins a list of strings with commas|compares two
version numbers|zips two lists into pairs|partitions a list by a condition|computes the running
total of a list|computes the dot product of two vectors|counts down with a loop|sums the even
numbers up to n|multiplies all numbers of a list|finds the longest substring
without repeating characters|checks if brackets are balanced|
evaluates an expression in reverse Polish notation|removes all punctuation from a text|finds the
intersection of two sets|computes the union of two lists|finds the smallest missing positive number|
moves all zeros of a list to its end|finds the majority element of a list|computes the product of all
other elements for each element|rotates a matrix by 90 degrees|prints a matrix in spiral order|checks
if a number is a perfect square|checks if a number is an Armstrong number|computes the least common
multiple of two numbers|converts a number to words|adds commas to a large number|converts hexadecimal
to decimal|converts RGB values to a hex colour|swaps the keys of two dictionaries|merges two
dictionaries|sorts words by their length|sorts people by age and then by name|finds the most frequent
word of a text|counts uppercase and lowercase letters|reverses a string without a library|repeats a
string n times|compares two strings without regard to case|extracts all numbers from a text|extracts
all links from a web page|finds all email addresses in a text|replaces a word in a file|reads
configuration from a file|reads the last ten lines of a file|zips a folder|computes the checksum of a
file|watches a folder for changes|creates a folder if it does not exist|finds duplicate files|deletes
files older than a week|prints the size of each file|backs up a folder|pings a list of servers|opens a
socket and echoes what it gets|serves a page over HTTP|parses the query of a URL|sends an email|logs
messages with a timestamp|measures the memory that a list takes|limits how often a function is called|
memoizes a recursive function|composes two functions|curries a function|implements map and filter by
hand|implements an iterator over a range|yields the lines of a file lazily|implements a generator of
squares|implements a ring buffer|implements a set|implements a trie|implements a min heap|implements an
LRU cache|implements a doubly linked list|implements a graph with an adjacency list|implements
Dijkstra's algorithm|implements topological sorting|implements the sieve of Eratosthenes|implements
the Euclidean algorithm|implements selection sort|implements heap sort|implements counting sort|
implements Newton's method for square roots|implements a bank of traffic lights|implements a state
machine for a door|implements a vending machine|implements an elevator|implements a parking lot|
implements a thermostat|implements an event emitter|implements a simple chat bot|implements hangman|
implements a number guessing game|implements Conway's game of life|implements a maze solver|implements
a sudoku checker|implements a tree traversal in order|computes the height of a binary tree|counts the
leaves of a tree|mirrors a binary tree|checks if a tree is balanced|detects a cycle in a linked list|
finds the middle of a linked list|removes an element from a linked list|computes the nth triangular
number|computes the binomial coefficient|computes the sum of squares|estimates pi with random points|
integrates a function numerically|fits a line to points|normalizes a vector|computes the determinant
of a matrix|computes a moving average|computes the variance of numbers|computes the percentile of a
list|plots a sine curve|plots a histogram|loads a data frame and prints its first rows|groups rows by
a column and sums them|fills missing values with the mean|trains a linear regression|splits data into
training and test sets|represents a circle with a radius|represents a person with a name and an
address|represents a song in a playlist|represents a ticket with a price|represents a bank transaction|
represents an animal that makes a sound|represents a matrix with addition|represents a fraction|
represents a time of day|represents a temperature in several units|represents a playing card|
represents a recipe with ingredients|represents an inventory of products|represents a queue of
customers|represents a message with a sender|represents a calendar event|keeps a high score|keeps
track of expenses|books a seat|rates a movie|sorts a list of students by grade|computes a letter grade
from a score|computes the cost of a trip|computes the monthly payment of a loan|computes the age from
a date of birth|finds the day of the week of a date|adds days to a date|formats a date|converts a time
between time zones|counts down to a date|validates a password|validates a credit card number|validates
a postal code|validates an IP address|escapes HTML characters|encodes a string in base64|encrypts a
message with XOR|generates a unique identifier|generates a random color|picks a random element of a
list|simulates tossing coins|simulates a random walk|shows a progress bar|prints a table with aligned
columns|prints a diamond of stars|prints a checkerboard|prints all even numbers below n|prints the
first n prime numbers|prints the ASCII code of a character|translates text to pig Latin|counts the
syllables of a word|checks if a sentence is a pangram|checks if one string is a rotation of another|
checks if a list contains a value|checks if a number lies in a range|checks if a file exists|checks if
two rectangles overlap|checks if a point lies in a circle|clamps a number to a range|rounds a number
to the nearest ten|sums the numbers given by a user|averages the columns of a table|finds the closest
number in a list|finds the largest sum of neighbouring elements|finds the longest common subsequence of
two strings|computes the edit distance of two strings|solves the knapsack problem|solves the towers of
Hanoi|solves the coin change problem|solves two equations with two unknowns|lists the permutations of
numbers|lists the combinations of k elements|lists the factors of a number|lists the words that start
with a vowel
""")
LANGUAGES = split("""
Python|Python|Python|Python|JavaScript|Java|C|C++|Rust|Go|SQL|TypeScript|Python|Python|JavaScript|
Java|Bash|C#|HTML and JavaScript|PHP|Ruby
""")
PROGRAMS = split("""
Write a {l} function that {c}.|Write a simple {l} program that {c}.|Show me {l} code that {c} and
explain how it works.|I need a {l} function that {c}. Please include an example.|Create a {l} script
that {c}, with comments.|How do I write a function in {l} that {c}?|Write a unit test for a {l}
function that {c}.|Write a {l} class that {c}.|Write {l} code that {c}.|Can you write a {l} function
that {c}?|Please write a short {l} program that {c} and explain each line.|Give me an example of a
{l} method that {c}.|Using {l}, write a function that {c}.|Here is my task: a {l} function that {c}.
Write it with error handling.|What is the simplest way to write {l} code that {c}?|Write a well
documented {l} function that {c}, and show how to call it.|Complete this task in {l}: write code that
{c}.|I am new to {l}. Show me a function that {c}.|Write {l} code that {c} and print the result for an
example.|Write a short {l} function that {c}. Only give the code.|Give me two ways to write {l} code
that {c}.|Write a {l} function which {c}, then test it with three inputs.|Write a recursive {l}
function that {c}.|Write a {l} function named solve that {c}.|Is there an easy way in {l} to write
something that {c}?|Explain step by step how to write a {l} program that {c}.
""")
QUESTIONS = split("""
What is a variable in {l}?|Explain loops in {l} with an example.|How do I handle errors in {l}?|What
is recursion? Give an example in {l}.|How do I read user input in {l}?|Explain the difference
between an array and a list in {l}.|How do I define a class in {l}?|How do I write a for loop in
{l}?|How do I concatenate strings in {l}?|What are the data types in {l}?|Write a hello world
program in {l}.|How do I sort a list in {l}?|How do I add an item to a list in {l}?|How do I remove
an item from an array in {l}?|How do I write to a file in {l}?|How do I check the type of a value in
{l}?|How do I convert a string to a number in {l}?|What is a function in {l}? Show an example.|What
is an interface in {l}?|What is inheritance in {l}?|How do I use a while loop in {l}?|What is the
difference between a local and a global variable in {l}?|How do I write an if statement in {l}?|How
do I comment code in {l}?|Show me how to use a switch or match in {l}.|How do I import a library in
{l}?|How do I generate a random number in {l}?|How do I split a string in {l}?|How do I iterate over
the keys of a map in {l}?|What are common mistakes of beginners in {l}?|How do I format a string in
{l}?|How do I measure the length of a string in {l}?|Explain classes and objects in {l} with an
example.|What does null mean in {l}?|How do I write tests in {l}?|How do I debug a program in {l}?|
How do I make an HTTP request in {l}?|What is the difference between {f} and
{g} in {l}?|Explain what {f} is in {l} and show an example.|When should I use {f} in {l}?|How does {f}
work in {l}?|Give an example of {f} in {l}.|What are the advantages of {f} over {g} in {l}?|Write a
short tutorial on {f} in {l}.|Why does my {l} code with {f} not work?
""")
FEATURES = split("""
a list|a tuple|a set|a map|a string|an array|an object|a class|a method|a constructor|a lambda|a
closure|a pointer|a reference|a loop|a generator|an exception|a module|a package|an enum|a struct|an
abstract class|a static method|a decorator|an annotation|a constant|a callback|a promise|a thread|a
lock|a stream|a regular expression|slicing|type conversion|string formatting|list comprehension|
operator overloading|polymorphism|encapsulation|garbage collection|pattern matching|a null check|a
default argument|an optional value|a template|a trait|a namespace|a switch statement|a ternary
operator|a unit test|a mock
""")
TABLES = split("""
employees|products|customers|books|students|invoices|flights|movies|courses|patients|sales|users|
articles|songs|cities|suppliers|rooms|teams
""")
QUERIES = split("""
Write a SQL query that lists all {t} sorted by {c}.|Write a SQL query that counts the {t} for each
{c}.|Write a SQL query that finds the {t} with the highest {c}.|Write a SQL query that deletes all {t}
without a {c}.|Write a SQL statement that creates a table called {t}.|Write a SQL query that joins {t}
and {u}.|Write a SQL query that updates the {c} of one of the {t}.|Write a SQL query that computes the
average {c} of all {t}.|Write a SQL query that selects all {t} where the {c} is above a limit.|How do
I insert a row into a table of {t}?|How do I find duplicates in the table {t} in SQL?|Write a SQL query
that selects the first five {t} by {c}.|What index would help to find {t} by {c}?|Write a SQL view over
{t} and {u}.
""")
COLUMNS = split("""
name|price|date|city|age|salary|rating|category|status|country|amount|title|size
""")
PAGES = split("""
Create an HTML page with {e} and {f}.|Write HTML for {e}.|Write CSS that styles {e}.|Write HTML and CSS
for a page with {e}.|How do I add {e} to a web page?|Write JavaScript that shows {e} when a button is
clicked.|Create a simple web page about {t} with {e}.|Write an HTML template with {e}, {f} and a
footer.|How do I center {e} with CSS?|Make {e} responsive with CSS.
""")
ELEMENTS = split("""
a table|a list of links|an image|a navigation bar|a login form|a search box|a video|a card|a gallery
of pictures|a drop-down menu|a checkbox|a footer|a sidebar|a slider|a contact form|a progress bar|a
tooltip|a modal window|two columns|a title and a subtitle|a price list|a calendar|a quote
""")
COMMANDS = split("""
lists the largest files|finds all files that contain a word|shows the free space on the disk|kills a
process by its name|counts the lines of all scripts|copies a folder to another machine|shows the last
lines of a log|sorts a file and removes duplicate lines|replaces a word in many files|makes a script
executable|unpacks an archive|shows who is logged in|runs a job every night|prints the second column of
a file|downloads a list of addresses|prints the current directory|loops over all images and resizes
them|checks if a service is running|sets an environment variable|creates ten numbered folders
""")
SHELL = split("""
Write a bash command that {c}.|Write a bash script that {c}.|Which Linux command {c}?|Explain a shell
command that {c}.|Give me a one-line command that {c}.|Write a PowerShell command that {c}.
""")
SENTENCES = split("""
The cat sat on the mat and looked at the rain outside.|Our company increased its revenue by twelve
percent last year thanks to new customers in Asia.|Scientists have discovered a new species of frog in
the mountains of Ecuador.|I am very happy to announce that I will be joining the team next month.|The
old bridge was closed for repairs, which caused long delays for commuters.|She opened the letter slowly,
afraid of what it might say.|Regular exercise and a balanced diet can help prevent many diseases.|The
meeting was moved to Thursday because the manager is travelling.|Many people enjoy drinking coffee in
the morning before they start working.|The museum will open a new exhibition about ancient Greek pottery
in the spring.|Learning a language takes time, but daily practice makes a big difference.|The storm
destroyed several houses along the coast and left thousands without power.|He forgot his keys at home
and had to wait for his brother.|The new phone has a better camera, a larger battery and a brighter
screen.|Trees absorb carbon dioxide and release oxygen, which makes cities healthier.|The library offers
free courses on computers, writing and music for all residents.|Hey, can u send me the report asap?
thx|me and him was going to the store yesterday but it were closed|The product arrived late and the box
was damaged, but the customer service was friendly and quick to help.|In 1969, humans walked on the Moon
for the first time, an event watched by millions of people around the world.
""")
REWRITES = split("""
Rewrite this sentence in a formal tone: "{s}"|Rewrite the following text to be shorter: "{s}"|Summarize:
"{s}"|Correct the grammar of this text: "{s}"|Rewrite this in a friendly and casual way: "{s}"|What is
the main idea of this text? "{s}"|Extract the key words from this text: "{s}"|What is the sentiment of
this text: "{s}"|Continue this text: "{s}"|Translate this sentence to French: "{s}"|Translate this
sentence to Spanish: "{s}"|Turn this sentence into a question: "{s}"|Make this text more descriptive:
"{s}"|Write a headline for this text: "{s}"
""")
SMALL_TALK = split("""
Hello!|Hi, how are you?|Who are you?|What can you do?|Tell me a joke.|Good morning!|Tell me something
interesting.|I am bored. What should I do?|Thank you for your help!|What is your name?|Can you help
me?|Give me a recipe for {d}.|How do I make {d}?|What are some good side dishes for {d}?|Plan a {n}-day
trip to {p}.|What are the best places to visit in {p}?|What is the capital of {p}?|Write a letter to my
{w} about {t}.|Give me {n} ideas for a birthday party for my {w}.|What gift should I buy for my {w} who
likes {t}?|Write a story about a {a} who lives in {p}.|Write a story about a {a} and a {b}.|Describe a
{a} in detail.|Which is bigger, a {a} or a {b}?|Write a haiku about a {a}.|List {n} synonyms for the
word "{y}".|Use the word "{y}" in {n} sentences.|What does the word "{y}" mean?|Write {n} questions I
could ask my {w} about {t}.|I feel {y} today. What should I do?|Pretend you are a {a} and introduce
yourself.|Write a {n}-sentence review of a restaurant in {p}.
""")
DISHES = split("""
pancakes|tomato soup|fried rice|chicken curry|apple pie|lasagna|guacamole|vegetable stew|banana
bread|pizza|tacos|omelette|chocolate cake|lentil soup|Caesar salad
""")
PLACES = split("""
Italy|Japan|Brazil|Egypt|Canada|New
York|London|Germany|Kenya|India|Australia|Mexico|Norway|Thailand|Peru|Spain|Vietnam|Greece|Morocco|Chicago
""")
PEOPLE = split("""
mother|father|boss|neighbour|teacher|best friend|sister|brother|grandmother|colleague|daughter|son
""")
CHARACTERS = split("""
dragon|robot|wizard|dog|fox|pirate|princess|dolphin|owl|lion|turtle|detective|ghost|farmer|knight|mouse|horse|astronaut|whale|rabbit
""")
MOODS = split("""
happy|sad|tired|brave|curious|angry|lonely|excited|nervous|proud|beautiful|strange|fast|quiet|important|difficult|generous|calm
""")

# How questions begin; the target goes on by itself.
OPENINGS = split("""
What|What is|What are|How|How do|How can I|Why|Why do|When|Where|Which|Who|Can you|Could you
explain|Explain|Describe|Write|Write a|Write a short|Write a Python function|Write a function|Write
code that|Create|Create a|Create a function|Give|Give me|List|List the|Name|Tell me|Suggest|
Summarize|Rewrite|Translate|Compare|Classify|Calculate|Find|Solve|If|A train|A store|There are|Tom
has|Given|Given a list|Imagine|I|I am|I want|I need|My|The|In|Is|Are|Do|Does|Should|Please|Design|
Generate|Make|Convert|Implement|Edit|Identify|Discuss|Develop|Complete|Choose|Help me|Let's|Provide|
Propose|Use|Analyze|Construct|Outline|Determine|Tell a story|Compose|Hello|Using|Based on|For|Fix|
Debug|Read|Write a Python program|Write a Python function that|Write a Python function to|Write a
Python script|Write a Python class|Create a Python|How do I write|In Python|Write a JavaScript
function|Write a Java program|Write a Java method|Write a C function|Write a C++|Write a SQL query|
Write an HTML|Create an HTML page|Write a bash script|Write a recursive function|Implement a
function|Implement a class|Write a program|Explain the following code|What does this code do|How can
I sort|Rewrite the following code|Qu'est-ce que|Wie|¿Qué es|Was ist
""")
SYSTEMS = split("""
You are a helpful assistant.|You are a patient teacher.|Be concise.|You are an expert programmer.|
Answer in one paragraph.|You are a friendly assistant who gives detailed answers.
""")
# The instructions that the demo pair has in this program (assets/pairs.toml).
PAIR_SYSTEM = "Answer questions briefly and correctly."


def arithmetic(r):
    """A sum, or a story with one in it."""
    n, m = r.sample(NAMES, 2)
    t = r.choice(THINGS)
    a, b, c = r.randint(2, 60), r.randint(2, 30), r.randint(2, 12)
    question = r.choice([
        f"{n} has {a+b} {t} and gives {b} of them to {m}. How many {t} does {n} have left?",
        f"{n} buys {c} boxes of {t}. Each box has {b} {t}. How many {t} are there in total?",
        f"A train travels at {a+20} km per hour for {c} hours. How far does it travel?",
        f"What is {a*7} + {b*9}?",
        f"What is {a+50} minus {b}?",
        f"Calculate {a} times {c}.",
        f"What is {c*b} divided by {c}?",
        f"If {n} earns ${a} per hour and works {b} hours, how much money does {n} earn?",
        f"{n} shares {c*b} {t} equally among {c} friends. How many {t} does each friend get?",
        f"Solve for x: {c}x + {b} = {c*a+b}.",
        f"What is {c*5}% of {a*10}?",
        f"A rectangle is {a} cm long and {b} cm wide. What are its area and perimeter?",
        f"A shirt costs ${a+20} and is on sale for {c*5}% off. What is the sale price?",
        f"{n} is {a} years old and {m} is {b} years older. What is the sum of their ages?",
        f"What is the average of {a}, {b} and {c}?",
        f"Find the next number in the sequence: {a}, {a+c}, {a+2*c}, {a+3*c}.",
        f"{n} reads {b} pages a day. How many days does it take to read a book of {b*c} pages?",
        f"Convert {a} kilometers to meters.",
        f"Is {a*2+1} a prime number? Explain.",
        f"What is the square of {c+3}?",
        f"A recipe for {c} people needs {b*10} grams of flour. How much flour is needed for {c*2} people?",
        f"Simplify the fraction {c*2}/{c*b}.",
        f"{n} had ${a+100}. {n} spent ${b} on food and ${c} on a bus ticket. How much is left?",
        f"The sum of two numbers is {a+b} and one of them is {a}. What is the other number?"
    ])
    return question + r.choice(["", "", "", " Show your work.", " Think step by step.", " Explain your reasoning."])


def program(r):
    """A question about code."""
    kind = r.random()
    if kind < 0.68:
        return r.choice(PROGRAMS).format(l=r.choice(LANGUAGES), c=r.choice(TASKS))
    if kind < 0.86:
        f, g = r.sample(FEATURES, 2)
        return r.choice(QUESTIONS).format(l=r.choice(LANGUAGES), f=f, g=g)
    if kind < 0.91:
        t, u = r.sample(TABLES, 2)
        return r.choice(QUERIES).format(t=t, u=u, c=r.choice(COLUMNS))
    if kind < 0.96:
        e, f = r.sample(ELEMENTS, 2)
        return r.choice(PAGES).format(e=e, f=f, t=r.choice(TOPICS))
    return r.choice(SHELL).format(c=r.choice(COMMANDS))


def templated(r):
    """A question from a template."""
    kind = r.random()
    t, u = r.sample(TOPICS, 2)
    if kind < 0.24:
        return r.choice(ABOUT).format(t=t, u=u)
    if kind < 0.34:
        return arithmetic(r)
    if kind < 0.86:
        return program(r)
    if kind < 0.91:
        return r.choice(REWRITES).format(s=r.choice(SENTENCES))
    a, b = r.sample(CHARACTERS, 2)
    return r.choice(SMALL_TALK).format(
        d=r.choice(DISHES), n=r.choice([2, 3, 4, 5, 7]), p=r.choice(PLACES), w=r.choice(PEOPLE),
        t=t, a=a, b=b, y=r.choice(MOODS))


def held_out():
    """Prompts that measurements use; none of them may be trained on."""
    root = pathlib.Path(__file__).parent.parent
    files = [*root.glob("assets/prompts/*.jsonl"), root / "tests/fixtures/heldout.jsonl"]
    return {turn for f in files for line in f.read_text().splitlines() if line
            for turn in json.loads(line)["turns"]}


def prompts(count, seed=1):
    """`count` prompts: four in ten are imagined by the target from an opening, the others
    templated and all different."""
    r, seen = random.Random(seed), held_out()
    for _ in range(count):
        prompt = {}
        if r.random() < 0.4:
            prompt = {"user": r.choice(OPENINGS), "imagine": True}
        else:
            while (text := templated(r)) in seen:
                pass
            seen.add(text)
            prompt = {"user": text}
        kind = r.random()
        if kind < 0.4:
            prompt["system"] = PAIR_SYSTEM
        elif kind < 0.5:
            prompt["system"] = r.choice(SYSTEMS)
        if r.random() < 0.12:
            prompt["turns"] = r.choice([2, 3])
        if r.random() < 0.2:
            prompt["temperature"] = 0.7
        yield prompt


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write prompts to train on.")
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for prompt in prompts(arguments.count, arguments.seed):
        print(json.dumps(prompt, ensure_ascii=False))
