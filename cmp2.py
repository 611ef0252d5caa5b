import json,subprocess,sys,os
E=os.environ
name,server,directport,host=sys.argv[1:5]
D='/tmp/w/mysql/node/tests/corpus/drivers/'
py=E['QUORUMSQL_PYTHON']
commands=["query","prepare","ping","reset","change_user"]
drivers={'mariadb':(["query"],[py,D+'python/command_line.py','mariadb']),
'PyMySQL':(["query","prepare","fetch","ping"],[py,D+'python/mysql_pymysql.py']),
'mysql-connector-python':(commands,[py,D+'python/mysql_connector.py']),
'go-sql-driver':(["query","prepare","ping"],[E['QUORUMSQL_CORPUS_GO'],'go-sql-driver']),
'connector-j':(["query","prepare","fetch","ping"],["java","-XX:TieredStopAtLevel=1","-Dfile.encoding=UTF-8","-cp",E['QUORUMSQL_CORPUS_JAVA'],"Corpus","mysql"]),
'mysql2':(commands,["env","NODE_PATH="+E['QUORUMSQL_NODE_MODULES'],"node",D+'node/mysql2.js'])}
kinds,prog=drivers[name]
only=sys.argv[5:] 
cases=[]
for c in json.load(open(E.get('CASES','/tmp/w/mysql/node/tests/corpus/cases/mysql.json'))):
    if c.get('only','') not in ('',server): continue
    if name in c.get('not',{}): continue
    if only and not any(o in c['name'] for o in only): continue
    steps=[]
    for s in c['steps']:
        b=dict(do='query',sql='',sets=[],size=0,data='',pipeline=[],fails=False)
        if isinstance(s,str):
            b['fails']=s.startswith('!'); b['sql']=s.lstrip('!').lstrip()
        else: b.update(s)
        steps.append(b)
    if not all(s['do'] in kinds for s in steps): continue
    cases.append(dict(name=c['name'],pins=c.get('pins',False),steps=steps))
json.dump(cases,open('/tmp/mysql_lab/cases-'+server+name+'.json','w'))
def run(h,p):
    r=subprocess.run(["timeout","120"]+prog+[h,str(p),"demo","demo","demo",'/tmp/mysql_lab/cases-'+server+name+'.json'],capture_output=True,text=True)
    if r.returncode: print('RC',r.returncode,r.stderr[-2000:])
    return [json.loads(l) for l in r.stdout.split('\n') if l]
A=run('127.0.0.1',directport);B=run(host,6033)
n=0
for a,b in zip(A,B):
    for k in ('connection_id','server_charset'): a.pop(k,None);b.pop(k,None)
    if a==b: continue
    if 'steps' not in a: print(a,b); continue
    case=[c for c in cases if c['name']==a['case']][0]
    for s,x,y in zip(case['steps'],a['steps'],b['steps']):
        x=json.loads(json.dumps(x)); 
        def strip(o):
            if isinstance(o,dict): return {k:strip(v) for k,v in o.items() if k!='session_state'}
            if isinstance(o,list): return [strip(v) for v in o]
            return o
        if strip(x)!=strip(y):
            n+=1
            print(a['case'],a['client'],s['do'],s['sql'][:100]); print('   D',json.dumps(x)[:500]); print('   T',json.dumps(y)[:500])
print(len(A),len(B),'lines',n,'diffs',len(cases),'cases')
